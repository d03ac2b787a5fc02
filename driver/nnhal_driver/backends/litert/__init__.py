"""Backend CpuAcc, which converts operations to a TFLite model for LiteRT, and runs regions of the LiteRT extension.

Importing this package registers it.
"""

from nnhal_driver.backends.litert import backend  # noqa: F401 - registers it
