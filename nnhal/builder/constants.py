"""Values of constants: small ones in `operand_values`, large ones together in one pool."""

import numpy as np

from nnhal.errors import invalid_argument
from nnhal.types import AnyArray, DataLocation, Memory, OperandLifeTime

MAX_COPIED_BYTES = 128
"""Larger constants go into the pool, as with the HAL's runtime."""
ALIGNMENT = 4
_MAX_POOL_BYTES = 2**32 - 1
"""What a DataLocation can tell (V-WIRE-04)."""


class Constants:
    """The values of one model's constants. Those in the pool are not copied before `pools` is asked for."""

    def __init__(self) -> None:
        self._values = bytearray()
        self._large: list[tuple[int, AnyArray]] = []
        self._end = 0

    def place(self, value: AnyArray) -> tuple[OperandLifeTime, DataLocation]:
        """Takes a value.

        Raises:
            HalError: INVALID_ARGUMENT: all constants together are too large for a pool.
        """
        if value.nbytes <= MAX_COPIED_BYTES:
            self._values += bytes(-len(self._values) % ALIGNMENT)
            location = DataLocation(0, len(self._values), value.nbytes)
            self._values += value.tobytes()
            return OperandLifeTime.CONSTANT_COPY, location
        offset = self._end + -self._end % ALIGNMENT
        if offset + value.nbytes > _MAX_POOL_BYTES:
            reason = f"the constants would have {offset + value.nbytes} bytes; a model holds at most {_MAX_POOL_BYTES}"
            raise invalid_argument(reason, "V-WIRE-04")
        self._large.append((offset, value))
        self._end = offset + value.nbytes
        return OperandLifeTime.CONSTANT_POOL, DataLocation(0, offset, value.nbytes)

    @property
    def operand_values(self) -> bytes:
        """The small values."""
        return bytes(self._values)

    @property
    def pools(self) -> tuple[Memory, ...]:
        """One pool with the large values, or none."""
        if not self._large:
            return ()
        data = np.zeros(self._end, np.uint8)
        for offset, value in self._large:
            data[offset : offset + value.nbytes].view(value.dtype).reshape(value.shape)[...] = value
        return (Memory.of(data),)
