"""Backend CpuAcc, which converts operations to a TFLite model for LiteRT. Importing this package registers it."""

from nnhal_driver.backends.litert.backend import CpuAcc

__all__ = ["CpuAcc"]
