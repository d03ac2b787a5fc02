"""Executions that use driver-managed buffers for some of their inputs or outputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias, TypedDict, cast

from numpy.typing import ArrayLike

from nnhal.client.core.arguments import type_error
from nnhal.client.core.arrays import (
    Inputs,
    ModelIO,
    NamedOutputs,
    Outputs,
    argument_dimensions,
    has_fixed_shape,
    output_array,
)
from nnhal.client.core.buffers import BufferBase, Dimensions
from nnhal.client.core.prepared_model import decode_result
from nnhal.errors import argument_error, general_failure
from nnhal.types import (
    AnyArray,
    BufferToken,
    Bytes,
    DataLocation,
    Memory,
    Request,
    RequestArgument,
    ReturnedPool,
    Timing,
)
from nnhal.v1 import types_pb2

BufferInputs: TypeAlias = Sequence[ArrayLike | BufferBase | None] | Mapping[str, ArrayLike | BufferBase | None]
"""One value per input, as in `Inputs`; a buffer may replace an array."""

OutputBuffers: TypeAlias = Sequence[BufferBase | None] | Mapping[int, BufferBase] | Mapping[str, BufferBase]
"""Buffers for outputs, by position or by name. Other outputs are returned as arrays."""


class BufferOutputs(NamedOutputs[AnyArray | BufferBase]):
    """Outputs of an execution, as arrays, or as the buffers that they were written to."""


AnyOutputs: TypeAlias = Outputs | BufferOutputs


class ExecuteOptions(TypedDict, total=False):
    """Options of an execution.

    Attributes:
        deadline: seconds from now.
        measure_timing: whether to fill `timing` of the result.
    """

    deadline: float | None
    measure_timing: bool


class ModelOptions(ExecuteOptions, total=False):
    """Options of an execution of a prepared model.

    Attributes:
        loop_timeout: timeout of each WHILE, in seconds.
    """

    loop_timeout: float | None


class BurstOptions(ExecuteOptions, total=False):
    """Options of an execution of a burst.

    Attributes:
        copy: whether to copy the outputs. Otherwise they are valid until the next call of the burst.
    """

    copy: bool


def plain_inputs(inputs: BufferInputs, outputs: OutputBuffers | None) -> Inputs | None:
    """Return the inputs of an execution without buffers, or None if it uses any. This is a hot path."""
    if outputs is not None:
        return None
    for value in inputs if isinstance(inputs, list | tuple) else _values(inputs):  # checking for an ABC takes longer
        if isinstance(value, BufferBase):
            return None
    return cast(Inputs, inputs)


def _values(inputs: BufferInputs) -> Iterable[object]:
    """Return the values of inputs of any kind; () for anything that `ModelIO.by_position` rejects."""
    if isinstance(inputs, Mapping):
        return inputs.values()
    return inputs if isinstance(inputs, Sequence) else ()


class BufferedExecution:
    """Execution that uses buffers.

    Attributes:
        request: has a pool for each array and each buffer, and a last one that grows for the other outputs, if any.
        arrays: for each pool, the input in it, or None.
        targets: for each output, the buffer that it is written to, or None.
        buffers: all buffers that it uses.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not match its operand, or there is no such output.
        TypeError: the inputs or outputs have a wrong type.
    """

    def __init__(self, io: ModelIO, inputs: BufferInputs, outputs: OutputBuffers | None) -> None:
        self._io = io
        self._returns_all = outputs is None
        self.targets = _targets(io, outputs)
        self.arrays: list[AnyArray | None] = []
        self.buffers: list[BufferBase] = []
        self._pools: list[Memory | BufferToken | ReturnedPool] = []
        values: Sequence[ArrayLike | BufferBase | None] = io.by_position(inputs)
        arguments = tuple(self._add_input(i, value) for i, value in enumerate(values))
        returned = DataLocation(len(self._pools) + sum(target is not None for target in self.targets))
        results = tuple(self._add_output(target, returned) for target in self.targets)
        if None in self.targets:
            self._add_pool(ReturnedPool())
        self.request = Request(arguments, results, tuple(self._pools))

    @property
    def inputs(self) -> list[AnyArray | None]:
        """Array of each input; None for one that is omitted or in a buffer."""
        return [
            None if argument.has_no_value else self.arrays[argument.location.pool_index]
            for argument in self.request.inputs
        ]

    def require_buffers(self) -> None:
        """Check that the buffers still exist.

        Raises:
            SessionLostError: one was lost with its session.
        """
        for buffer in self.buffers:
            buffer.require_session()

    def read(self, response: types_pb2.ExecutionResult, memories: Mapping[bytes, Bytes]) -> AnyOutputs:
        """Return the outputs of a response, given the bytes of its Memory objects by handle; set shapes of buffers."""
        result = decode_result(response, memories)
        returned = result.returned or (None,) * len(self.targets)
        shapes = [shape.dimensions for shape in result.output_shapes]
        self.set_shapes(shapes)
        return self.combine_outputs(
            [
                output_array(operand, data, shape) if target is None else None
                for operand, target, data, shape in zip(self._io.outputs, self.targets, returned, shapes, strict=True)
            ],
            result.timing,
        )

    def set_shapes(self, shapes: Iterable[Dimensions]) -> None:
        """Set the shapes of the buffers, given the shapes of all outputs."""
        for target, shape in zip(self.targets, shapes, strict=True):
            if target is not None:
                target.set_shape(shape)

    def combine_outputs(self, arrays: Sequence[AnyArray | None], timing: Timing) -> AnyOutputs:
        """Return arrays and buffers in the order of the outputs; `arrays` has None for outputs in buffers."""
        names = self._io.output_names
        if self._returns_all:
            return Outputs.of((array for array in arrays if array is not None), names, timing)
        pairs = zip(arrays, self.targets, strict=True)
        outputs = (array if target is None else target for array, target in pairs)
        return BufferOutputs.of((output for output in outputs if output is not None), names, timing)

    def clear_buffers(self) -> None:
        """Mark the output buffers as uninitialized."""
        for target in self.targets:
            if target is not None:
                target.set_shape(None)

    @contextmanager
    def clearing_on_error(self) -> Iterator[None]:
        """Mark the output buffers as uninitialized if the call within fails."""
        try:
            yield
        except BaseException:
            self.clear_buffers()
            raise

    def _add_input(self, index: int, value: ArrayLike | BufferBase | None) -> RequestArgument:
        operand = self._io.inputs[index]
        if isinstance(value, BufferBase):
            shape = value.shape
            if shape is None:
                raise general_failure(f"input {index} is in a buffer that is uninitialized", "V-TOKEN-02")
            dimensions = () if has_fixed_shape(operand) else shape
            return RequestArgument(False, self._add_buffer(value), dimensions)
        array = self._io.convert(index, value)
        if array is None:
            return RequestArgument(has_no_value=True)
        location = replace(self._add_pool(Memory.of(array), array), length=array.nbytes)
        return RequestArgument(False, location, argument_dimensions(operand, array))

    def _add_output(self, target: BufferBase | None, returned: DataLocation) -> RequestArgument:
        return RequestArgument(False, returned if target is None else self._add_buffer(target))

    def _add_buffer(self, buffer: BufferBase) -> DataLocation:
        self.buffers.append(buffer)
        return self._add_pool(BufferToken(buffer.token))

    def _add_pool(self, pool: Memory | BufferToken | ReturnedPool, array: AnyArray | None = None) -> DataLocation:
        self._pools.append(pool)
        self.arrays.append(array)
        return DataLocation(len(self._pools) - 1)


def _targets(io: ModelIO, outputs: OutputBuffers | None) -> list[BufferBase | None]:
    """Return a buffer or None for each output."""
    count = len(io.outputs)
    targets: list[BufferBase | None] = [None] * count
    if isinstance(outputs, Mapping):
        for key, buffer in outputs.items():
            targets[io.io_index(key, is_output=True)] = buffer
    elif outputs is not None:
        if not isinstance(outputs, Sequence):
            raise type_error("outputs", outputs, "buffers in a list, or in a dict by position or name")
        if len(outputs) != count:
            raise argument_error(f"{len(outputs)} outputs given; the model has {count}")
        targets[:] = outputs
    for index, target in enumerate(targets):
        if target is not None and not isinstance(target, BufferBase):
            raise type_error(f"output {index}", target, "a nnhal.Buffer")
    return targets
