"""Backends that run LiteRT: CpuAcc, which converts operations to a TFLite model, and Unverified, which runs regions.

Importing this package registers them.
"""

from nnhal_driver.backends.litert.backend import CpuAcc
from nnhal_driver.backends.litert.unverified import Unverified

__all__ = ["CpuAcc", "Unverified"]
