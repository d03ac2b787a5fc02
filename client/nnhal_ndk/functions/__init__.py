"""Functions of the C library, in one module for each kind of object. They convert arguments, and nothing else."""

from nnhal_ndk.functions import (  # noqa: F401  (they register)
    compilation,
    device,
    event,
    execution,
    extension,
    memory,
    model,
)
from nnhal_ndk.functions.register import REGISTERED

__all__ = ["REGISTERED"]
