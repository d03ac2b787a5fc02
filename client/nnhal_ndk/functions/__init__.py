"""Functions of the C library: `table` has the Python function of each one, and `register` converts arguments."""

from nnhal_ndk.functions.register import callables
from nnhal_ndk.functions.table import TABLE

__all__ = ["REGISTERED"]

REGISTERED = callables(TABLE)
"""Functions by the name of the C function, see `callables`."""
