"""Backend GpuAcc: LiteRT's GPU accelerator through its C API. Importing this package registers it."""

from nnhal_driver.backends.gpu.backend import GpuAcc

__all__ = ["GpuAcc"]
