"""What reusable executions of both clients have in common: where their inputs lie, and the requests of their runs."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.buffered import BufferedExecution, BufferInputs, Targets
from nnhal.errors import invalid_argument
from nnhal.fenced import FenceBase, FixedOutputs, Layout, StoredOutputs, nanoseconds
from nnhal.owned import C, goes_with
from nnhal.pools import uploaded_memory
from nnhal.tensors import Ends
from nnhal.types import AnyArray, Bytes
from nnhal.v1 import execution_pb2, prepared_model_pb2, types_pb2


class ExecutionBase(Generic[C]):
    """A frozen execution of a prepared model. Runs of one kind, `run` or `run_fenced`, come one after another.

    The service lets it go when this object is closed or collected.
    """

    def __init__(
        self,
        connection: C,
        prepared_model: bytes,
        ends: Ends,
        inputs: BufferInputs,
        outputs: Targets | None,
        measure_timing: bool,
    ) -> None:
        self._connection = connection
        self._prepared_model = prepared_model
        self._ends = ends
        self._config = types_pb2.ExecutionConfig(measure_timing=measure_timing)
        self._handles: list[bytes] = []
        self._finalizer = goes_with(self, _discard_all, connection, self._handles)
        self._frozen = Frozen(ends, inputs, outputs)
        self._inputs = b""
        self._synchronous = b""
        self._fenced = b""
        self._outputs = b""
        self._last: Callable[[], StoredOutputs | None] = lambda: None

    def _own(self, handle: bytes) -> bytes:
        """Takes an object that is let go with this one."""
        self._handles.append(handle)
        return handle

    def _create_request(self, request: types_pb2.Request) -> prepared_model_pb2.CreateReusableExecutionRequest:
        return prepared_model_pb2.CreateReusableExecutionRequest(
            session=self._connection.session, prepared_model=self._prepared_model, request=request, config=self._config
        )

    def _message(self) -> types_pb2.Request:
        """The request of synchronous runs."""
        return self._frozen.message(self._inputs)

    def _fenced_message(self) -> types_pb2.Request:
        """The request of fenced runs."""
        message = self._frozen.message(self._inputs)
        self._fixed.put(message, self._outputs)
        return message

    @cached_property
    def _fixed(self) -> FixedOutputs:
        """The outputs of fenced runs.

        Raises:
            HalError: INVALID_ARGUMENT: the shape of one is not fixed.
        """
        return FixedOutputs(self._ends, self._frozen.execution)

    def _run_request(self, deadline: float | None) -> execution_pb2.RunExecutionRequest:
        return execution_pb2.RunExecutionRequest(
            session=self._connection.session, execution=self._synchronous, deadline_ns=nanoseconds(deadline)
        )

    def _run_fenced_request(
        self, wait_for: Iterable[FenceBase[Any]], deadline: float | None, duration: float | None
    ) -> execution_pb2.RunExecutionFencedRequest:
        return execution_pb2.RunExecutionFencedRequest(
            session=self._connection.session,
            execution=self._fenced,
            wait_for=[fence.handle for fence in wait_for],
            deadline_ns=nanoseconds(deadline),
            duration_ns=nanoseconds(duration),
        )

    @contextmanager
    def _overtaking(self) -> Iterator[StoredOutputs]:
        """Surrounds the launch of a run; gives its outputs. Those of the run before it are lost, unless it fails."""
        stored = StoredOutputs(self._fixed, self._outputs, self)
        last = self._last()
        before = last is not None and last.overtaken
        if last is not None:
            last.overtaken = True
        try:
            yield stored
        except BaseException:
            if last is not None:
                last.overtaken = before
            raise
        self._last = weakref.ref(stored)


def _discard_all(connection: C, handles: list[bytes]) -> None:
    """Lets go what an execution has by then."""
    connection.discard(*handles)


def _laid_out(arrays: Sequence[AnyArray | None]) -> tuple[Layout, Bytes]:
    """Where the inputs of a reusable execution lie in their Memory object, and its first contents."""
    layout = Layout.of(0 if array is None else array.nbytes for array in arrays)
    contents = np.zeros(layout.size, np.uint8)
    for array, offset in zip(arrays, layout.offsets, strict=True):
        if array is not None:
            contents[offset : offset + array.nbytes] = _bytes_of(array)
    return layout, contents


def _bytes_of(array: AnyArray) -> Bytes:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Frozen:
    """The inputs of a reusable execution: what they are, where they lie, and their first contents.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not fit, or there is no output of a name or number.
    """

    def __init__(self, ends: Ends, inputs: BufferInputs, outputs: Targets | None) -> None:
        self._ends = ends
        self.execution = BufferedExecution(ends, inputs, outputs)
        self._layout, self.contents = _laid_out(self.execution.arrays)

    def message(self, memory: bytes) -> types_pb2.Request:
        """A request whose arrays lie in this Memory object; outputs go to their buffers, or are returned."""
        message = wire.request_message(self.execution.request, lambda _: uploaded_memory(memory))
        for argument in message.inputs:
            pool = argument.location.pool_index
            if not argument.has_no_value and self.execution.arrays[pool] is not None:
                argument.location.offset = self._layout.offsets[pool]
        return message

    def changes(self, inputs: Mapping[int | str, ArrayLike]) -> list[tuple[Bytes, int]]:
        """New values of inputs: bytes, and where they go.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, it was omitted, it is a buffer, or its shape is another
                one.
        """
        changes = []
        for key, value in inputs.items():
            number = self._ends.index(key, is_output=False)
            old = self.execution.inputs[number]
            new = self._ends.checked(number, value)
            if old is None or new is None or new.shape != old.shape:
                shape = "nothing to be changed here" if old is None else f"shape {list(old.shape)}"
                raise invalid_argument(f"input {key} was frozen with {shape}")
            pool = self.execution.request.inputs[number].location.pool_index
            changes.append((_bytes_of(new), self._layout.offsets[pool]))
        return changes
