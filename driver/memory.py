"""Where inputs come from and outputs go: the pools of a request as arrays.

Inputs are views of their pools, or copies where a client may write to them meanwhile; outputs are written once,
straight into their region.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    is_extension,
)

_NOTHING: Bytes = np.empty(0, np.uint8)


class RegionOutput:
    """An output that lies in a region of a pool. `declared`: what is known of its shape; 0 and () are unknown."""

    def __init__(self, place: "OutputPlace", region: Bytes) -> None:
        self.declared = place.declared
        self.shape = place.shape
        self._region = region
        self._written = 0

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Copies the value, if it fits (V-RUN-07)."""
        if array.shape != self.declared or array.nbytes > self._region.size:
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

    def __init__(self, place: "OutputPlace") -> None:
        self.declared = place.declared
        self.shape = place.shape
        self.data = _NOTHING

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Keeps the value, or a copy of it."""
        if array.shape != self.declared:
            self.shape = OutputShape(array.shape)
        kept = np.ascontiguousarray(array) if keep else np.array(array, order="C")
        self.data = kept.reshape(-1).view(np.uint8)


class OmittedOutput:
    """An output that the request leaves out."""

    def __init__(self, declared: tuple[int, ...]) -> None:
        self.declared = declared
        self.shape = OutputShape(declared)
        self.data = _NOTHING

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        """Only the shape is kept."""
        self.shape = OutputShape(array.shape)


BoundOutput = RegionOutput | GrownOutput | OmittedOutput | BufferOutput


def merged_dimensions(operand: Operand, argument: RequestArgument) -> tuple[int, ...]:
    """The shape that model and request give together; 0 and () where it stays open."""
    return argument.dimensions or operand.dimensions


class InputPlace(NamedTuple):
    """Where an input lies in its pool. `name`: what a person calls it."""

    operand: Operand
    dimensions: tuple[int, ...]
    pool: int
    start: int
    end: int
    name: str


class OutputPlace(NamedTuple):
    """Where an output goes. `shape`: of outputs as they are declared; `is_returned`: its pool is a ReturnedPool."""

    declared: tuple[int, ...]
    shape: OutputShape
    pool: int
    start: int
    end: int
    is_returned: bool


@dataclass(frozen=True, slots=True)
class ValidRequest(Request):
    """A request that has been judged; its buffers have been found.

    Attributes:
        input_places, output_places: where the arguments lie, None for those that are omitted. They are the same for all
            requests of one form, whatever their pools hold.
    """

    input_places: tuple[InputPlace | None, ...]
    output_places: tuple[OutputPlace | None, ...]

    @staticmethod
    def of(request: Request, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> "ValidRequest":
        """Works out where the arguments lie. `inputs`, `outputs`: operands of the model."""
        into = zip(inputs, request.inputs, strict=True)
        out_of = zip(outputs, request.outputs, strict=True)
        return ValidRequest(
            request.inputs,
            request.outputs,
            request.pools,
            tuple(_input_place(index, *pair) for index, pair in enumerate(into)),
            tuple(_output_place(request, *pair) for pair in out_of),
        )

    def with_pools(self, pools: tuple[RequestMemoryPool, ...]) -> "ValidRequest":
        """Another request of the same form."""
        return ValidRequest(self.inputs, self.outputs, pools, self.input_places, self.output_places)


def _input_place(index: int, operand: Operand, argument: RequestArgument) -> InputPlace | None:
    if argument.has_no_value:
        return None
    dimensions, at = merged_dimensions(operand, argument), argument.location
    end = at.offset + (at.length if is_extension(operand.type) else byte_size(operand.type, dimensions))
    return InputPlace(operand, dimensions, at.pool_index, at.offset, end, f"input {index} of the request")


def _output_place(request: Request, operand: Operand, argument: RequestArgument) -> OutputPlace | None:
    if argument.has_no_value:
        return None
    at = argument.location
    is_returned = isinstance(request.pools[at.pool_index], ReturnedPool)
    declared = merged_dimensions(operand, argument)
    return OutputPlace(declared, OutputShape(declared), at.pool_index, at.offset, at.offset + at.length, is_returned)


class BoundRequest:
    """A valid request, as arrays.

    Args:
        outputs: operands of the model's outputs.
        private: whether inputs that a client may write to meanwhile are copied.

    Attributes:
        inputs: one array per input, None where it is omitted.
        outputs: where each output goes.
    """

    def __init__(self, request: ValidRequest, outputs: Sequence[Operand], *, private: bool = True) -> None:
        # loops, not comprehensions: this is made for each execution, and those are calls
        self._private = private
        self._request = request
        self._values: BufferValues | None = None
        self._places = request.output_places
        self._pools: list[Bytes | HeldBuffer | None] = []
        for pool in request.pools:
            self._pools.append(_window(pool) if isinstance(pool, Memory) else _open(pool))
        self.inputs: list[AnyArray | None] = []
        for wanted in request.input_places:
            self.inputs.append(None if wanted is None else self._input(wanted))
        self.outputs: list[BoundOutput] = []
        for operand, argument, place in zip(outputs, request.outputs, self._places, strict=True):
            if place is None:
                self.outputs.append(OmittedOutput(merged_dimensions(operand, argument)))
            else:
                self.outputs.append(self._output(place))

    def shapes(self) -> tuple[tuple[OutputShape, ...], bool]:
        """The shapes of the outputs, and whether each region was large enough."""
        shapes, sufficient = [], True
        for output in self.outputs:
            shape = output.shape
            shapes.append(shape)
            sufficient = sufficient and shape.is_sufficient
        return tuple(shapes), sufficient

    def returned(self) -> tuple[Bytes | None, ...]:
        """What goes back with the result: one entry per output if any lies in a ReturnedPool, else none."""
        returned: list[Bytes | None] = []
        some = False
        for place, output in zip(self._places, self.outputs, strict=True):
            goes = place is not None and place.is_returned
            returned.append(output.data if goes else None)
            some = some or goes
        return tuple(returned) if some else ()

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

    def _input(self, place: InputPlace) -> AnyArray:
        hold_rank(len(place.dimensions), place.name)
        pool = self._pools[place.pool]
        assert pool is not None, "inputs in a ReturnedPool are refused"
        if isinstance(pool, HeldBuffer):
            if self._values is None:
                self._values = BufferValues(self._request)
            pool = self._values.read(pool, place.dimensions, place.name)
        return array_over(place.operand, pool[place.start : place.end], place.dimensions, private=self._private)

    def _output(self, place: OutputPlace) -> BoundOutput:
        pool = self._pools[place.pool]
        if pool is None:
            return GrownOutput(place)
        if isinstance(pool, HeldBuffer):
            return BufferOutput(place.declared, pool.contents)
        return RegionOutput(place, pool[place.start : place.end])


def _window(pool: Memory) -> Bytes:
    """The bytes of a memory."""
    return pool.buffer if pool.length is None and pool.offset == 0 else pool.view


def _open(pool: RequestMemoryPool) -> Bytes | HeldBuffer | None:
    """The bytes of a pool that is no Memory; None where outputs are as large as they turn out to be."""
    match pool:
        case HeldBuffer():
            return pool
        case ReturnedPool(size=None):
            return None
        case ReturnedPool(size=int(size)):
            return np.empty(size, np.uint8)
        case _:
            raise AssertionError("unset unions are refused, tokens are held")
