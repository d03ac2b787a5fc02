"""Backends that run LiteRT: CpuAcc, which converts operations to a TFLite model, and Unverified, which runs regions.

Importing this package registers them.
"""

from nnhal_driver.backends.litert import backend, unverified  # noqa: F401 - registers them
