"""Inputs of reusable executions in a Memory object."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.buffered_execution import BufferedExecution, BufferInputs, OutputBuffers
from nnhal.client.core.fences import lay_out
from nnhal.client.core.memory import memory_object_message
from nnhal.errors import argument_error
from nnhal.types import AnyArray, Bytes
from nnhal.v1 import types_pb2


class BoundInputs:
    """Inputs of a reusable execution, bound to a Memory object on the service.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not match its operand, or there is no such output.
    """

    def __init__(self, io: ModelIO, inputs: BufferInputs, outputs: OutputBuffers | None) -> None:
        self._io = io
        self.execution = BufferedExecution(io, inputs, outputs)
        arrays = self.execution.arrays
        self._offsets, size = lay_out(0 if array is None else array.nbytes for array in arrays)
        self.contents = np.zeros(size, np.uint8)
        pairs = zip(arrays, self._offsets, strict=True)
        self.update((_bytes_of(array), offset) for array, offset in pairs if array is not None)

    def message(self, memory: bytes) -> types_pb2.Request:
        """Return a request whose arrays are in a Memory object, and whose outputs go to buffers or are returned."""
        message = wire.request_message(self.execution.request, lambda _: memory_object_message(memory))
        for argument in message.inputs:
            pool = argument.location.pool_index
            if not argument.has_no_value and self.execution.arrays[pool] is not None:
                argument.location.offset = self._offsets[pool]
        return message

    def changes(self, inputs: Mapping[int | str, ArrayLike]) -> list[tuple[Bytes, int]]:
        """Return the bytes of new input values, each with its offset in the Memory object.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, it was omitted, it is a buffer, or its shape differs.
        """
        changes = []
        for key, value in inputs.items():
            number = self._io.io_index(key, is_output=False)
            old = self.execution.inputs[number]
            new = self._io.convert(number, value)
            if old is None:
                raise argument_error(f"input {key} cannot be changed: the execution has no array for it")
            if new is None or new.shape != old.shape:
                shape = None if new is None else list(new.shape)
                raise argument_error(f"input {key} has shape {shape}; the execution was created with {list(old.shape)}")
            pool = self.execution.request.inputs[number].location.pool_index
            changes.append((_bytes_of(new), self._offsets[pool]))
        return changes

    def update(self, changes: Iterable[tuple[Bytes, int]]) -> None:
        """Keep changes, in case that the Memory object is lost."""
        for data, offset in changes:
            self.contents[offset : offset + data.size] = data


def _bytes_of(array: AnyArray) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
