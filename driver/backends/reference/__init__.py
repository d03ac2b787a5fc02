"""CpuRef: plain numpy, the oracle. Kernels stand in one module per family, named as in `driver.operations`."""

from driver.backends.reference.backend import CpuRef

__all__ = ["CpuRef"]
