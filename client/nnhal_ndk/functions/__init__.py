"""Functions of the C library, in one module for each kind of object. They convert arguments, and nothing else."""

from nnhal_ndk.functions import compilation, device, event, execution, memory, model  # noqa: F401  (they register)
from nnhal_ndk.functions.register import REGISTERED

__all__ = ["REGISTERED"]
