"""Executions that use driver-managed buffers: inputs lie in them, and outputs go to them; for both clients."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias, TypedDict, cast

from numpy.typing import ArrayLike

from nnhal.buffer import BufferBase, Dimensions
from nnhal.errors import general_failure, invalid_argument
from nnhal.prepared import read_result, read_results
from nnhal.tensors import Ends, Inputs, Named, Outputs, open_dimensions, output_array
from nnhal.types import (
    AnyArray,
    BufferToken,
    Bytes,
    DataLocation,
    ExecutionResult,
    Memory,
    Request,
    RequestArgument,
    ReturnedPool,
    Timing,
    is_fully_specified,
)
from nnhal.v1 import types_pb2

BufferInputs: TypeAlias = Sequence[ArrayLike | BufferBase | None] | Mapping[str, ArrayLike | BufferBase | None]
"""As `Inputs`, with buffers in place of arrays where wanted."""

Targets: TypeAlias = Sequence[BufferBase | None] | Mapping[int, BufferBase] | Mapping[str, BufferBase]
"""Buffers for outputs, by position or by name; None, or one left out, comes back as an array."""


class BufferOutputs(Named[AnyArray | BufferBase]):
    """Outputs of an execution: arrays, and in place of those that went to buffers the buffers."""


AnyOutputs: TypeAlias = Outputs | BufferOutputs


class How(TypedDict, total=False):
    """How an execution runs.

    Attributes:
        deadline: seconds from now.
        measure_timing: fill `timing` of the result.
    """

    deadline: float | None
    measure_timing: bool


def without_buffers(inputs: BufferInputs, outputs: Targets | None) -> Inputs | None:
    """The inputs of an execution that uses no buffers; None where it uses some."""
    if outputs is not None:
        return None
    # asking an ABC takes longer
    values = inputs.values() if not isinstance(inputs, list | tuple) and isinstance(inputs, Mapping) else inputs
    for value in values:
        if isinstance(value, BufferBase):
            return None
    return cast(Inputs, inputs)


class BufferedExecution:
    """One execution that uses buffers.

    Attributes:
        request: has a pool for each array and each buffer; the last one grows for the other outputs, if there are any.
        arrays: one entry per pool: the input in it, or None.
        targets: one entry per output: the buffer that takes it, or None.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not fit, or there is no output of a name or number.
    """

    def __init__(self, ends: Ends, inputs: BufferInputs, outputs: Targets | None) -> None:
        self._ends = ends
        self._all_return = outputs is None
        self.targets = _targets(ends, outputs)
        self.arrays: list[AnyArray | None] = []
        self._pools: list[Memory | BufferToken | ReturnedPool] = []
        values: Sequence[ArrayLike | BufferBase | None] = ends.by_position(inputs)
        arguments = tuple(self._input(i, value) for i, value in enumerate(values))
        grown = DataLocation(len(self._pools) + sum(target is not None for target in self.targets))
        results = tuple(self._output(target, grown) for target in self.targets)
        if None in self.targets:
            self._add(ReturnedPool())
        self.request = Request(arguments, results, tuple(self._pools))

    @property
    def inputs(self) -> list[AnyArray | None]:
        """One entry per input: the array; None where it is omitted, or a buffer."""
        return [None if one.has_no_value else self.arrays[one.location.pool_index] for one in self.request.inputs]

    def read(self, response: types_pb2.ExecutionResult, memories: Mapping[bytes, Bytes]) -> AnyOutputs:
        """The outputs of a result. `memories`: the bytes of those that came as Memory objects, by handle."""
        if self._all_return:
            return read_results(self._ends, response, memories)
        return self.results(read_result(response, memories))

    def results(self, result: ExecutionResult) -> AnyOutputs:
        """The outputs of a result: arrays alone where no output was given a buffer."""
        returned = result.returned or (None,) * len(self.targets)
        shapes = [shape.dimensions for shape in result.output_shapes]
        self.filled(shapes)
        return self.outputs(
            [
                output_array(operand, data, shape) if target is None else None
                for operand, target, data, shape in zip(self._ends.outputs, self.targets, returned, shapes, strict=True)
            ],
            result.timing,
        )

    def filled(self, shapes: Iterable[Dimensions]) -> None:
        """Notes the shapes of all outputs, of which some have gone to buffers."""
        for target, shape in zip(self.targets, shapes, strict=True):
            if target is not None:
                target.holds(shape)

    def outputs(self, arrays: Sequence[AnyArray | None], timing: Timing) -> AnyOutputs:
        """Puts the outputs together. `arrays`: None for those that went to buffers."""
        names = self._ends.output_names
        if self._all_return:
            return Outputs.of((array for array in arrays if array is not None), names, timing)
        pairs = zip(arrays, self.targets, strict=True)
        found = (array if target is None else target for array, target in pairs)
        return BufferOutputs.of((output for output in found if output is not None), names, timing)

    def failed(self) -> None:
        """Notes that what it was to fill is uninitialised."""
        for target in self.targets:
            if target is not None:
                target.holds(None)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Surrounds the call."""
        try:
            yield
        except BaseException:
            self.failed()
            raise

    def _input(self, index: int, value: ArrayLike | BufferBase | None) -> RequestArgument:
        operand = self._ends.inputs[index]
        if isinstance(value, BufferBase):
            shape = value.shape
            if shape is None:
                raise general_failure(f"input {index} lies in a buffer that is uninitialised", "V-TOKEN-02")
            known = is_fully_specified(operand.type, operand.dimensions)
            return RequestArgument(False, self._add(BufferToken(value.token)), () if known else shape)
        array = self._ends.checked(index, value)
        if array is None:
            return RequestArgument(has_no_value=True)
        location = replace(self._add(Memory.of(array), array), length=array.nbytes)
        return RequestArgument(False, location, open_dimensions(operand, array))

    def _output(self, target: BufferBase | None, grown: DataLocation) -> RequestArgument:
        return RequestArgument(False, grown if target is None else self._add(BufferToken(target.token)))

    def _add(self, pool: Memory | BufferToken | ReturnedPool, array: AnyArray | None = None) -> DataLocation:
        self._pools.append(pool)
        self.arrays.append(array)
        return DataLocation(len(self._pools) - 1)


def _targets(ends: Ends, outputs: Targets | None) -> list[BufferBase | None]:
    """A buffer or None for each output."""
    count = len(ends.outputs)
    found: list[BufferBase | None] = [None] * count
    if isinstance(outputs, Mapping):
        for end, buffer in outputs.items():
            found[ends.index(end, is_output=True)] = buffer
    elif outputs is not None:
        if len(outputs) != count:
            raise invalid_argument(f"{len(outputs)} outputs given; the model has {count}")
        found[:] = outputs
    return found
