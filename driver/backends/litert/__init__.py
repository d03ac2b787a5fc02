"""CpuAcc: operations become a TFLite model that LiteRT runs with XNNPACK; importing this package registers it."""

from driver.backends.litert.backend import CpuAcc

__all__ = ["CpuAcc"]
