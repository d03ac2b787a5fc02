"""Where inputs come from and outputs go: the pools of a request as arrays.

Inputs are views of their pools, or copies where a client may write to them meanwhile; outputs are written once,
straight into their region.
"""

from collections.abc import Sequence

import numpy as np

from driver.buffer import BufferOutput, BufferValues, HeldBuffer
from driver.graph import array_over, hold_rank
from nnhal.types import (
    AnyArray,
    Bytes,
    Memory,
    Operand,
    OutputShape,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
    byte_size,
)


class RegionOutput:
    """An output that lies in a region of a pool. `declared`: what is known of its shape; 0 and () are unknown."""

    def __init__(self, declared: tuple[int, ...], region: Bytes) -> None:
        self.declared = declared
        self._region = region
        self._written = 0
        self.shape = OutputShape(declared)

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Copies the value, if it fits (V-RUN-07)."""
        self.shape = OutputShape(array.shape, array.nbytes <= self._region.size)
        if self.shape.is_sufficient:
            self._region[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._written = array.nbytes

    @property
    def data(self) -> Bytes:
        """The bytes written."""
        return self._region[: self._written]


class GrownOutput:
    """An output that is as large as it turns out to be."""

    def __init__(self, declared: tuple[int, ...]) -> None:
        self.declared = declared
        self.shape = OutputShape(declared)
        self.data: Bytes = np.empty(0, np.uint8)

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Keeps the value, or a copy of it."""
        self.shape = OutputShape(array.shape)
        kept = np.ascontiguousarray(array) if keep else np.array(array, order="C")
        self.data = kept.reshape(-1).view(np.uint8)


class OmittedOutput:
    """An output that the request leaves out."""

    def __init__(self, declared: tuple[int, ...]) -> None:
        self.declared = declared
        self.shape = OutputShape(declared)
        self.data: Bytes = np.empty(0, np.uint8)

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Only the shape is kept."""
        self.shape = OutputShape(array.shape)


BoundOutput = RegionOutput | GrownOutput | OmittedOutput | BufferOutput


def merged_dimensions(operand: Operand, argument: RequestArgument) -> tuple[int, ...]:
    """The shape that model and request give together; 0 and () where it stays open."""
    return argument.dimensions or operand.dimensions


class BoundRequest:
    """A valid request, as arrays; its buffers have been found.

    Attributes:
        inputs: one array per input, None where it is omitted.
        outputs: where each output goes.
    """

    def __init__(self, request: Request, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
        self._values = BufferValues(request)
        self._pools = [_open(pool) for pool in request.pools]
        self._returned = [
            not argument.has_no_value and isinstance(request.pools[argument.location.pool_index], ReturnedPool)
            for argument in request.outputs
        ]
        self.inputs = [self._input(i, *pair) for i, pair in enumerate(zip(inputs, request.inputs, strict=True))]
        self.outputs = [self._output(*pair) for pair in zip(outputs, request.outputs, strict=True)]

    def returned(self) -> tuple[Bytes | None, ...]:
        """What goes back with the result: one entry per output if any lies in a ReturnedPool, else none."""
        if not any(self._returned):
            return ()
        pairs = zip(self._returned, self.outputs, strict=True)
        return tuple(output.data if returned else None for returned, output in pairs)

    def deliver(self) -> None:
        """Hands outputs that lie in buffers over to them; to be called when the execution has succeeded.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*: a buffer has no room for its output.
        """
        for output in self.outputs:
            if isinstance(output, BufferOutput):
                output.deliver()

    def withdraw(self) -> None:
        """Leaves such buffers uninitialised; to be called when there are no outputs."""
        for output in self.outputs:
            if isinstance(output, BufferOutput):
                output.withdraw()

    def _input(self, index: int, operand: Operand, argument: RequestArgument) -> AnyArray | None:
        if argument.has_no_value:
            return None
        dimensions = merged_dimensions(operand, argument)
        place = f"input {index} of the request"
        hold_rank(len(dimensions), place)
        start = argument.location.offset
        pool = self._pools[argument.location.pool_index]
        assert pool is not None, "inputs in a ReturnedPool are refused"
        if isinstance(pool, HeldBuffer):
            pool = self._values.read(pool, dimensions, place)
        array = array_over(operand, pool[start : start + byte_size(operand.type, dimensions)], dimensions)
        return array

    def _output(self, operand: Operand, argument: RequestArgument) -> BoundOutput:
        declared = merged_dimensions(operand, argument)
        if argument.has_no_value:
            return OmittedOutput(declared)
        pool = self._pools[argument.location.pool_index]
        if pool is None:
            return GrownOutput(declared)
        if isinstance(pool, HeldBuffer):
            return BufferOutput(declared, pool.contents)
        start = argument.location.offset
        return RegionOutput(declared, pool[start : start + argument.location.length])


def _open(pool: RequestMemoryPool) -> Bytes | HeldBuffer | None:
    """The bytes of a pool; None where outputs are as large as they turn out to be."""
    match pool:
        case Memory():
            return pool.view
        case HeldBuffer():
            return pool
        case ReturnedPool(size=None):
            return None
        case ReturnedPool(size=int(size)):
            return np.empty(size, np.uint8)
        case _:
            raise AssertionError("unset unions are refused, tokens are held")
