"""Layout of a request's tensors in shared memory, and the request that refers to it."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnhal import wire
from nnhal.alignment import align
from nnhal.client.core.arrays import ModelIO, argument_dimensions, has_fixed_shape, require_dtype, value_size
from nnhal.client.core.buffered_execution import BufferedExecution
from nnhal.types import (
    AnyArray,
    BufferToken,
    Bytes,
    DataLocation,
    Memory,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
)
from nnhal.v1 import types_pb2

Arrays = Sequence[AnyArray | None]


class SlotLayout:
    """Locations of a request's tensors in a slot of the shared memory.

    Args:
        io: inputs and outputs of the model.
        arrays: the inputs.
        identifiers: identifier of each input, -1 if it is not cached. Cached inputs have memories of their own.
        scratch_size: bytes for outputs of unknown size.

    Attributes:
        size: size of the slot in bytes.
        inputs, outputs: offset of each tensor, or None if it is not in the slot or if its size is not known.
        scratch: offset of the scratch area, where outputs of unknown size appear.
        scratch_size: its size in bytes; 0 if no output needs it.
    """

    def __init__(self, io: ModelIO, arrays: Arrays, identifiers: Sequence[int], scratch_size: int) -> None:
        self.size = 0
        self.inputs = [
            None if array is None or identifier >= 0 else self._allocate(array.nbytes)
            for array, identifier in zip(arrays, identifiers, strict=True)
        ]
        self.outputs = [
            self._allocate(value_size(operand, operand.dimensions)) if has_fixed_shape(operand) else None
            for operand in io.outputs
        ]
        self.scratch_size = scratch_size if None in self.outputs else 0
        self.scratch = self._allocate(self.scratch_size)

    def _allocate(self, size: int) -> int:
        start = self.size
        self.size += align(size)
        return start

    def input_views(self, arrays: Arrays, memory: Bytes, base: int) -> tuple[AnyArray | None, ...]:
        """Return views of the inputs in the memory, for a slot that begins at byte `base`."""
        return tuple(
            None
            if start is None or array is None
            else memory[base + start : base + start + array.nbytes].view(array.dtype).reshape(array.shape)
            for start, array in zip(self.inputs, arrays, strict=True)
        )

    def output_views(self, io: ModelIO, memory: Bytes, base: int) -> tuple[AnyArray | None, ...]:
        """Return views of the outputs in the memory, for a slot that begins at byte `base`."""
        outputs: list[AnyArray | None] = []
        for operand, start in zip(io.outputs, self.outputs, strict=True):
            if start is None:
                outputs.append(None)
            else:
                raw = memory[base + start : base + start + value_size(operand, operand.dimensions)]
                outputs.append(raw.view(require_dtype(operand)).reshape(operand.dimensions))
        return tuple(outputs)

    def scratch_view(self, memory: Bytes, base: int) -> Bytes:
        """Return a view of the scratch area in the memory, for a slot that begins at byte `base`."""
        return memory[base + self.scratch : base + self.scratch + self.scratch_size]


def build_slot_request(
    io: ModelIO, arrays: Arrays, identifiers: Sequence[int], layout: SlotLayout, base: int
) -> Request:
    """Return the request of a slot. Its pools are the memory, the cached inputs, and one for returned outputs."""
    pools = itertools.count(1)
    inputs = []
    for operand, array, start in zip(io.inputs, arrays, layout.inputs, strict=True):
        if array is None:
            inputs.append(RequestArgument(has_no_value=True))
            continue
        pool, offset = (0, base + start) if start is not None else (next(pools), 0)
        dimensions = argument_dimensions(operand, array)
        inputs.append(RequestArgument(False, DataLocation(pool, offset, array.nbytes), dimensions))
    cached_count = sum(identifier >= 0 for identifier in identifiers)
    outputs = []
    for operand, start in zip(io.outputs, layout.outputs, strict=True):
        if start is None:
            outputs.append(RequestArgument(False, DataLocation(cached_count + 1)))
        else:
            size = value_size(operand, operand.dimensions)
            outputs.append(RequestArgument(False, DataLocation(0, base + start, size)))
    # placeholders: `encode_shared` gives the messages
    memories: list[RequestMemoryPool] = [Memory(np.empty(0, np.uint8)) for _ in range(cached_count + 1)]
    if None in layout.outputs:
        memories.append(ReturnedPool())
    return Request(tuple(inputs), tuple(outputs), tuple(memories))


def replace_buffered_arguments(request: Request, execution: BufferedExecution) -> Request:
    """Return the request with the arguments that are in buffers replaced by those buffers."""
    pools = list(request.pools)

    def replace_argument(argument: RequestArgument, buffered: RequestArgument) -> RequestArgument:
        pool = None if buffered.has_no_value else execution.request.pools[buffered.location.pool_index]
        if not isinstance(pool, BufferToken):
            return argument
        pools.append(pool)
        return replace(buffered, location=DataLocation(len(pools) - 1))

    inputs = tuple(map(replace_argument, request.inputs, execution.request.inputs))
    outputs = tuple(map(replace_argument, request.outputs, execution.request.outputs))
    return Request(inputs, outputs, tuple(pools))


def encode_shared(numbers: Sequence[int]) -> wire.SendMemory:
    """Return a function that encodes the pools of a request, in order, as shared memories with these numbers."""
    remaining = iter(numbers)
    return lambda pool: types_pb2.Memory(shared=next(remaining))
