"""Storage of constants: small ones in `operand_values`, large ones together in one pool."""

import numpy as np

from nnhal.errors import invalid_argument
from nnhal.rules.ranges import MAXIMUM_LOCATION
from nnhal.types import AnyArray, DataLocation, Memory, OperandLifeTime

MAX_COPIED_BYTES = 128
"""Size up to which a constant is copied into `operand_values`, as in the HAL's runtime."""
ALIGNMENT = 4


class Constants:
    """Values of one model's constants. Those in the pool are copied only when `pools` is read."""

    def __init__(self) -> None:
        self._values = bytearray()
        self._large: list[tuple[int, AnyArray]] = []
        self._end = 0

    def add(self, value: AnyArray) -> tuple[OperandLifeTime, DataLocation]:
        """Store a value and return its lifetime and location.

        Raises:
            HalError: INVALID_ARGUMENT: the constants together are too large for a pool.
        """
        if value.nbytes <= MAX_COPIED_BYTES:
            self._values += bytes(-len(self._values) % ALIGNMENT)
            location = DataLocation(0, len(self._values), value.nbytes)
            self._values += value.tobytes()
            return OperandLifeTime.CONSTANT_COPY, location
        offset = self._end + -self._end % ALIGNMENT
        end = offset + value.nbytes
        if end > MAXIMUM_LOCATION:
            reason = f"the constants would have {end} bytes; a model holds at most {MAXIMUM_LOCATION}"
            raise invalid_argument(reason, "V-WIRE-04")
        self._large.append((offset, value))
        self._end = end
        return OperandLifeTime.CONSTANT_POOL, DataLocation(0, offset, value.nbytes)

    @property
    def operand_values(self) -> bytes:
        """The small values."""
        return bytes(self._values)

    @property
    def pools(self) -> tuple[Memory, ...]:
        """One pool with the large values; empty if there are none."""
        if not self._large:
            return ()
        data = np.zeros(self._end, np.uint8)
        for offset, value in self._large:
            data[offset : offset + value.nbytes].view(value.dtype).reshape(value.shape)[...] = value
        return (Memory.of(data),)
