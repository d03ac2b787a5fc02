"""Inputs and outputs of an engine, in a memory file that its process and its worker map.

The worker does not trust the other side: the file cannot shrink, and names of types and shapes are checked.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnhal.alignment import align
from nnhal.types import AnyArray
from nnhal_driver.operations.call import Shape

TensorForm = tuple[str, Shape]
"""The dtype of a tensor as text, and its shape."""

_KINDS = "biufc"
"""Kinds of dtypes whose elements may have any bits, and Booleans."""
_MAX_RANK = 32
"""Largest rank of numpy arrays of all versions."""


def create_memory() -> int:
    """Return the descriptor of a new file that cannot shrink. The caller closes it."""
    descriptor = os.memfd_create("nnhal-engine", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return descriptor


def checked_form(dtype: Any, shape: Any) -> TensorForm:
    """Return the form of a tensor that another process names.

    Raises:
        ValueError: it is invalid.
    """
    is_shape = len(shape) <= _MAX_RANK and all(type(length) is int and length >= 0 for length in shape)
    if not is_shape or np.dtype(dtype).kind not in _KINDS:
        raise ValueError(f"{dtype} of shape {shape} is not a tensor")
    return dtype, tuple(shape)


class EngineMemory:
    """One side's view of the file.

    Args:
        may_grow: whether this side makes the file larger if necessary.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mapped: mmap.mmap | None = None

    def arrays(self, forms: Sequence[TensorForm], *, may_grow: bool) -> list[AnyArray]:
        """Return tensors that lie in the file one after the other, as arrays.

        Args:
            forms: the forms of all inputs, then those of the outputs as far as they are known.
            may_grow: whether to make the file large enough.

        Raises:
            ValueError: it is not large enough.
            OSError: this process may not make it that large.
        """
        offsets, end = [], 1
        for dtype, shape in forms:
            offsets.append(align(end))
            end = offsets[-1] + prod(shape) * np.dtype(dtype).itemsize
        if self._mapped is None or len(self._mapped) < end:
            if may_grow and os.fstat(self._descriptor).st_size < end:
                os.posix_fallocate(self._descriptor, 0, end)
            self._mapped = mmap.mmap(self._descriptor, end)  # fails if the file is smaller
        places = zip(forms, offsets, strict=True)
        return [np.ndarray(shape, dtype, self._mapped, offset) for (dtype, shape), offset in places]
