"""Reusable executions: the common base of both clients, the memory of their inputs, and the requests of their runs."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.buffered_execution import BufferedExecution, BufferInputs, OutputBuffers
from nnhal.client.core.fences import (
    FenceBase,
    FixedOutputs,
    MemoryLayout,
    StoredOutputs,
    fence_handles,
    nanoseconds_or_omitted,
)
from nnhal.client.core.handles import C, release_with
from nnhal.client.core.memory import memory_object_message
from nnhal.client.core.prepared_model import RemoteModel
from nnhal.errors import SessionLostError, invalid_argument
from nnhal.types import AnyArray, Bytes, ErrorStatus
from nnhal.v1 import execution_pb2, prepared_model_pb2, types_pb2


class ReusableExecutionBase(Generic[C]):
    """Reusable execution of either client, without the calls."""

    def __init__(self, io: ModelIO, inputs: BufferInputs, outputs: OutputBuffers | None, measure_timing: bool) -> None:
        self._connection: C | None = None
        self._session_handle = self._prepared_model = b""
        self._io = io
        self._config = types_pb2.ExecutionConfig(measure_timing=measure_timing)
        self._handles: list[bytes] = []
        self._finalizer: weakref.finalize[Any, Any] = release_with(self, _nothing)
        self._bound = BoundInputs(io, inputs, outputs)
        self._input_memory = b""
        self._output_memory = b""
        self._synchronous = b""
        self._fenced = b""
        self._last_outputs: Callable[[], StoredOutputs | None] = lambda: None

    def _move(self, remote: RemoteModel[C], input_memory: bytes) -> None:
        """Begin anew on another connection, with the Memory object for the inputs.

        Raises:
            SessionLostError: the execution has been closed.
        """
        connection, handle = remote
        if self._finalizer.detach() is None:
            connection.discard(input_memory)
            raise SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, "the execution has been closed")
        self._connection, self._session_handle, self._prepared_model = connection, connection.session, handle
        self._handles = [input_memory]
        self._finalizer = release_with(self, _discard_all, connection, self._handles)
        self._input_memory, self._output_memory, self._synchronous, self._fenced = input_memory, b"", b"", b""

    def _own(self, handle: bytes) -> bytes:
        """Release an object with this one, and return its handle."""
        self._handles.append(handle)
        return handle

    def _create_request(self, request: types_pb2.Request) -> prepared_model_pb2.CreateReusableExecutionRequest:
        return prepared_model_pb2.CreateReusableExecutionRequest(
            session=self._session_handle, prepared_model=self._prepared_model, request=request, config=self._config
        )

    def _message(self) -> types_pb2.Request:
        """Return the request of synchronous runs."""
        return self._bound.message(self._input_memory)

    def _fenced_message(self) -> types_pb2.Request:
        """Return the request of fenced runs."""
        message = self._bound.message(self._input_memory)
        self._fixed_outputs.fill_request(message, self._output_memory)
        return message

    @cached_property
    def _fixed_outputs(self) -> FixedOutputs:
        """Outputs of fenced runs.

        Raises:
            HalError: INVALID_ARGUMENT: the shape of an output is not fixed.
        """
        return FixedOutputs(self._io, self._bound.execution)

    def _run_request(self, deadline: float | None) -> execution_pb2.RunExecutionRequest:
        return execution_pb2.RunExecutionRequest(
            session=self._session_handle,
            execution=self._synchronous,
            deadline_ns=nanoseconds_or_omitted(deadline),
        )

    def _run_fenced_request(
        self, wait_for: Iterable[FenceBase[Any]], deadline: float | None, duration: float | None
    ) -> execution_pb2.RunExecutionFencedRequest:
        return execution_pb2.RunExecutionFencedRequest(
            session=self._session_handle,
            execution=self._fenced,
            wait_for=fence_handles(wait_for),
            deadline_ns=nanoseconds_or_omitted(deadline),
            duration_ns=nanoseconds_or_omitted(duration, "duration"),
        )

    @contextmanager
    def _superseding(self) -> Iterator[StoredOutputs]:
        """Yield the outputs of a run that is launched within; those of the run before are lost if that succeeds."""
        outputs = StoredOutputs(self._fixed_outputs, self._output_memory, self)
        last = self._last_outputs()
        was_superseded = last is not None and last.superseded
        if last is not None:
            last.superseded = True
        try:
            yield outputs
        except BaseException:
            if last is not None:
                last.superseded = was_superseded
            raise
        self._last_outputs = weakref.ref(outputs)


def _nothing() -> None:
    """Release nothing: the execution has no objects on the service yet."""


def _discard_all(connection: C, handles: list[bytes]) -> None:
    """Release the handles that the list has at the time of the call."""
    connection.discard(*handles)


class BoundInputs:
    """Inputs of a reusable execution, bound to a Memory object on the service.

    Attributes:
        execution: the execution, with buffers if it uses any.
        contents: contents of the Memory object.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not match its operand, or there is no such output.
    """

    def __init__(self, io: ModelIO, inputs: BufferInputs, outputs: OutputBuffers | None) -> None:
        self._io = io
        self.execution = BufferedExecution(io, inputs, outputs)
        self._layout, self.contents = _lay_out(self.execution.arrays)

    def message(self, memory: bytes) -> types_pb2.Request:
        """Return a request whose arrays are in a Memory object, and whose outputs go to buffers or are returned."""
        message = wire.request_message(self.execution.request, lambda _: memory_object_message(memory))
        for argument in message.inputs:
            pool = argument.location.pool_index
            if not argument.has_no_value and self.execution.arrays[pool] is not None:
                argument.location.offset = self._layout.offsets[pool]
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
                raise invalid_argument(f"input {key} cannot be changed: the execution has no array for it")
            if new is None or new.shape != old.shape:
                shape = None if new is None else list(new.shape)
                raise invalid_argument(
                    f"input {key} has shape {shape}; the execution was created with {list(old.shape)}"
                )
            pool = self.execution.request.inputs[number].location.pool_index
            changes.append((_bytes_of(new), self._layout.offsets[pool]))
        return changes

    def update(self, changes: Iterable[tuple[Bytes, int]]) -> None:
        """Keep changes, in case that the Memory object is lost."""
        for data, offset in changes:
            self.contents[offset : offset + data.size] = data


def _lay_out(arrays: Sequence[AnyArray | None]) -> tuple[MemoryLayout, Bytes]:
    """Return the locations of arrays in a Memory object, and its contents."""
    layout = MemoryLayout.of(0 if array is None else array.nbytes for array in arrays)
    contents = np.zeros(layout.size, np.uint8)
    for array, offset in zip(arrays, layout.offsets, strict=True):
        if array is not None:
            contents[offset : offset + array.nbytes] = _bytes_of(array)
    return layout, contents


def _bytes_of(array: AnyArray) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
