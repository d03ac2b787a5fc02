"""Binding of requests: the regions of their pools as input arrays and outputs.

Inputs are views of their pools, or copies where a client may write to them meanwhile. Outputs are written once,
directly into their region.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

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
from nnhal_driver.backends.device_memory import DeviceMemory, DeviceValue
from nnhal_driver.backends.division import LARGE, copy_of
from nnhal_driver.execution.buffer import BufferOutput, BufferReader, ResolvedBuffer, on_host
from nnhal_driver.graph import array_from_bytes
from nnhal_driver.scheduling.paced_check import proceed
from nnhal_driver.validation.rank import check_rank

_EMPTY: Bytes = np.empty(0, np.uint8)


class RegionOutput:
    """Output in a region of a pool. `declared` is its shape as far as known; 0 and () are unknown."""

    def __init__(self, binding: "OutputBinding", region: Bytes) -> None:
        self.declared = binding.declared
        self.shape = binding.shape
        self._region = region
        self._written = 0

    def write(self, array: Any, *, keep: bool = False) -> None:
        """Copy the value if it fits (V-RUN-07)."""
        if array.shape != self.declared or array.nbytes > self._region.size:
            self.shape = OutputShape(array.shape, array.nbytes <= self._region.size)
        if self.shape.is_sufficient:
            self._region[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._written = array.nbytes

    def view(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> AnyArray | None:
        """Return the region as an array that a value can be copied to; None if only `write` can take it."""
        size = prod(shape) * dtype.itemsize
        if shape != self.declared or size > self._region.size:
            return None
        array = self._region[:size].view(dtype).reshape(shape)
        if not array.flags.aligned:
            return None
        self._written = size
        return array

    @property
    def data(self) -> Bytes:
        """The bytes written."""
        return self._region[: self._written]


class GrowableOutput:
    """Output of any size, in memory of its own."""

    def __init__(self, binding: "OutputBinding") -> None:
        self.declared = binding.declared
        self.shape = binding.shape
        self.data = _EMPTY

    def write(self, array: Any, *, keep: bool = False) -> None:
        """Keep the value, or a copy of it."""
        if array.shape != self.declared:
            self.shape = OutputShape(array.shape)
        value = np.ascontiguousarray(array) if keep else np.array(array, order="C")
        self.data = value.reshape(-1).view(np.uint8)


class OmittedOutput:
    """Output that the request omits."""

    def __init__(self, declared: tuple[int, ...]) -> None:
        self.declared = declared
        self.shape = OutputShape(declared)
        self.data = _EMPTY

    def write(self, array: Any, *, keep: bool = False) -> None:
        """Keep the shape only."""
        self.shape = OutputShape(array.shape)


BoundOutput = RegionOutput | GrowableOutput | OmittedOutput | BufferOutput


def merged_dimensions(operand: Operand, argument: RequestArgument) -> tuple[int, ...]:
    """Return the shape according to model and request; 0 and () where it is unknown."""
    return argument.dimensions or operand.dimensions


class InputBinding(NamedTuple):
    """Region of an input in its pool. `name` is its name in messages."""

    operand: Operand
    dimensions: tuple[int, ...]
    pool: int
    start: int
    end: int
    name: str


class OutputBinding(NamedTuple):
    """Region of an output in its pool.

    Attributes:
        declared: its shape according to model and request.
        shape: the same, for the result.
        is_returned: whether the pool is a ReturnedPool.
    """

    declared: tuple[int, ...]
    shape: OutputShape
    pool: int
    start: int
    end: int
    is_returned: bool


@dataclass(frozen=True, slots=True)
class ValidRequest(Request):
    """Validated request whose buffers are resolved.

    Attributes:
        input_bindings, output_bindings: regions of the arguments; None for omitted ones. They are the same for all
            requests that differ only in the contents of their pools.
        returned_bytes: size of the ReturnedPools that have one, which an execution allocates as a whole.
    """

    input_bindings: tuple[InputBinding | None, ...]
    output_bindings: tuple[OutputBinding | None, ...]
    returned_bytes: int = 0

    @staticmethod
    def bind(request: Request, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> "ValidRequest":
        """Compute the regions of the arguments of a validated request whose buffers are resolved."""
        input_pairs = zip(inputs, request.inputs, strict=True)
        output_pairs = zip(outputs, request.outputs, strict=True)
        return ValidRequest(
            request.inputs,
            request.outputs,
            request.pools,
            tuple(_bind_input(index, *pair) for index, pair in enumerate(input_pairs)),
            tuple(_bind_output(request, *pair) for pair in output_pairs),
            sum(pool.size or 0 for pool in request.pools if isinstance(pool, ReturnedPool)),
        )

    def with_pools(self, pools: tuple[RequestMemoryPool, ...]) -> "ValidRequest":
        """Return the request with other pools of the same kinds and sizes."""
        return ValidRequest(
            self.inputs, self.outputs, pools, self.input_bindings, self.output_bindings, self.returned_bytes
        )


def _bind_input(index: int, operand: Operand, argument: RequestArgument) -> InputBinding | None:
    if argument.has_no_value:
        return None
    dimensions, location = merged_dimensions(operand, argument), argument.location
    size = location.length if is_extension(operand.type) else byte_size(operand.type, dimensions)
    name = f"input {index} of the request"
    return InputBinding(operand, dimensions, location.pool_index, location.offset, location.offset + size, name)


def _bind_output(request: Request, operand: Operand, argument: RequestArgument) -> OutputBinding | None:
    if argument.has_no_value:
        return None
    location = argument.location
    is_returned = isinstance(request.pools[location.pool_index], ReturnedPool)
    declared = merged_dimensions(operand, argument)
    end = location.offset + location.length
    return OutputBinding(declared, OutputShape(declared), location.pool_index, location.offset, end, is_returned)


class BoundRequest:
    """Arrays of a valid request.

    Args:
        private: whether inputs that a client may write to meanwhile are copied.
        memories: memories of backends. An input whose buffer has its value there stays there.
        check: called while a large input is copied; raises to end the execution.

    Attributes:
        inputs: one value for each input; None if omitted.
    """

    def __init__(
        self,
        request: ValidRequest,
        outputs: Sequence[Operand],
        *,
        private: bool = True,
        memories: Collection[DeviceMemory] = (),
        check: Callable[[], None] = proceed,
    ) -> None:
        # hot path: loops and not comprehensions, which are calls
        self._private = private
        self._check = check
        self._memories = memories
        self._buffers: BufferReader | None = None
        self._bindings = request.output_bindings
        self._pools: list[Bytes | ResolvedBuffer | None] = []
        for pool in request.pools:
            if isinstance(pool, Memory):
                self._pools.append(pool.buffer if pool.length is None and pool.offset == 0 else pool.view)
            else:
                self._pools.append(pool if isinstance(pool, ResolvedBuffer) else _open(pool))
        self.inputs: list[AnyArray | DeviceValue | None] = []
        for input_binding in request.input_bindings:
            self.inputs.append(None if input_binding is None else self._input(input_binding))
        self.outputs: list[BoundOutput] = []
        for operand, argument, binding in zip(outputs, request.outputs, self._bindings, strict=True):
            if binding is None:
                self.outputs.append(OmittedOutput(merged_dimensions(operand, argument)))
            else:
                self.outputs.append(self._output(binding))

    def shapes(self) -> tuple[tuple[OutputShape, ...], bool]:
        """Return the shapes of the outputs, and whether each region was large enough."""
        shapes, sufficient = [], True
        for output in self.outputs:
            shape = output.shape
            shapes.append(shape)
            sufficient = sufficient and shape.is_sufficient
        return tuple(shapes), sufficient

    def returned_data(self) -> tuple[Bytes | None, ...]:
        """Return the bytes of outputs in a ReturnedPool, with None for the others; () if there are none."""
        returned: list[Bytes | None] = []
        some = False
        for binding, output in zip(self._bindings, self.outputs, strict=True):
            is_returned = binding is not None and binding.is_returned
            returned.append(on_host(output.data) if is_returned else None)
            some = some or is_returned
        return tuple(returned) if some else ()

    def commit(self) -> None:
        """Store outputs in their buffers. Call it when the execution has succeeded.

        Raises:
            HalError: RESOURCE_EXHAUSTED_*: there is no memory for the value of a buffer.
        """
        for output in self.outputs:
            if isinstance(output, BufferOutput):
                output.commit()

    def discard(self) -> None:
        """Make output buffers uninitialized. Call it when there are no outputs."""
        for output in self.outputs:
            if isinstance(output, BufferOutput):
                output.discard()

    def _input(self, binding: InputBinding) -> AnyArray | DeviceValue:
        check_rank(len(binding.dimensions), binding.name)
        pool = self._pools[binding.pool]
        assert pool is not None, "validation rejects inputs in a ReturnedPool"
        if isinstance(pool, ResolvedBuffer):
            if self._buffers is None:
                self._buffers = BufferReader()
            value = self._buffers.read(pool, binding.dimensions, binding.name)
            if isinstance(value, DeviceValue) and value.memory in self._memories:
                return value
            region = on_host(value)  # the whole buffer
        else:
            region = pool[binding.start : binding.end]
        is_divided = self._private and region.nbytes > LARGE
        private = self._private and not is_divided
        array = array_from_bytes(binding.operand, region, binding.dimensions, private=private)
        return copy_of(array, self._check) if is_divided and array.flags.writeable else array

    def _output(self, binding: OutputBinding) -> BoundOutput:
        pool = self._pools[binding.pool]
        if pool is None:
            return GrowableOutput(binding)
        if isinstance(pool, ResolvedBuffer):
            return BufferOutput(binding.shape, pool.state)
        return RegionOutput(binding, pool[binding.start : binding.end])


def _open(pool: RequestMemoryPool) -> Bytes | None:
    """Return the bytes of a ReturnedPool; None where outputs may have any size."""
    match pool:
        case ReturnedPool(size=None):
            return None
        case ReturnedPool(size=int(size)):
            return np.empty(size, np.uint8)
        case _:
            raise AssertionError("unset unions are rejected and tokens resolved before")
