"""Bursts: many executions of one prepared model, with less work for each.

with prepared.burst() as burst:
    outputs = burst.execute([image])  # one after another
    futures = [burst.submit([image]) for image in images]  # several in progress; answered in order
    weights = burst.keep(weights)  # an input that stays the same is sent once
    outputs = burst.execute([image, weights])

A burst has a gRPC stream, or on the same machine a channel over shared memory, see `nnhal.client.sync.burst_transport`.
Hand-written: `submit` returns futures, and threads share the work of reading results.
"""

import contextlib
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Unpack, overload

from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import (
    AnyOutputs,
    BufferInputs,
    BufferOutputs,
    ExecuteOptions,
    OutputBuffers,
)
from nnhal.client.core.burst import PendingExecution
from nnhal.client.core.handles import description, release_with
from nnhal.client.core.prepared_model import RemoteModel
from nnhal.client.sync.burst_transport import (
    BurstTransport,
    Pending,
    PendingResult,
    TransportClosed,
    open_burst_transport,
)
from nnhal.client.sync.connection import Connection
from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus

READER_IDLE_S = 1.0
"""Seconds that the thread that reads the results of `submit` waits for more work."""


def new_burst(remote: RemoteModel[Connection], io: ModelIO, owner: object) -> "Burst":
    """Open a burst. The asyncio form keeps `owner`, the prepared model, alive; this one does not need it."""
    return Burst(open_burst_transport(*remote, io), io)


class Burst:
    """Burst of executions. Thread safe. Close it, or use it as a context manager; closing waits for its executions."""

    def __init__(self, transport: BurstTransport, io: ModelIO) -> None:
        self._transport = transport
        self._io = io
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._in_progress: deque[Pending] = deque()
        self._submitted = threading.Condition()
        self._reader: threading.Thread | None = None
        self._error: HalError | None = None
        self._finalizer = release_with(self, transport.close)

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[ExecuteOptions]) -> Outputs: ...

    @overload
    def execute(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[ExecuteOptions]
    ) -> BufferOutputs: ...

    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> AnyOutputs:
        """Run the model and wait. Arguments, result and errors are those of `PreparedModel.execute`."""
        result = PendingResult()
        self._send(PendingExecution.of(self._io, inputs, outputs, result), deadline, measure_timing)
        while not result.done():
            self._receive_next(result)
        return result.result()

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[ExecuteOptions]
    ) -> "Future[Outputs]": ...

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[ExecuteOptions]
    ) -> "Future[BufferOutputs]": ...

    def submit(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> "Future[Any]":
        """Send an execution without waiting for it, unless too many are in progress. Inputs may change at once.

        Executions run in the order in which they are sent, so one may read a buffer that an earlier one writes. If the
        shape of the buffer is open, its value must be there first, because the execution that reads it gives the shape.

        Returns:
            a future of the outputs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand; or the burst has been closed.
        """
        future: Future[Any] = Future()
        self._send(PendingExecution.of(self._io, inputs, outputs, future), deadline, measure_timing)
        with self._submitted:
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, name="nnhal-burst", daemon=True)
                self._reader.start()
            self._submitted.notify()
        return future

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. The bytes of the copy are sent only once, with its first use."""
        with self._sending:
            return self._transport.cached_inputs.add(array)

    def release(self, array: AnyArray) -> None:
        """Release an array of `keep`."""
        with self._sending:
            identifier = self._transport.cached_inputs.remove(array)
            if identifier < 0 or self._error is not None:
                return
            if (response := self._transport.release(identifier)) is not None:
                self._in_progress.append(response)

    def _send(self, execution: Pending, deadline: float | None, measure_timing: bool) -> None:
        while (oldest := self._try_send(execution, deadline, measure_timing)) is not None:
            self._receive_next(oldest)

    def _try_send(
        self, execution: Pending, deadline: float | None, measure_timing: bool
    ) -> Future[Any] | PendingResult | None:
        """Send an execution and return None; or, if too many are in progress, return the oldest to wait for."""
        try:
            with self._sending:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                if len(self._in_progress) >= self._transport.depth:
                    return self._in_progress[0].future
                self._transport.send(execution, deadline, measure_timing)
                self._in_progress.append(execution)
                return None
        except TransportClosed as closed:
            self._fail(closed.error)
            raise closed.error from None

    def _receive_next(self, until: Future[Any] | PendingResult) -> None:
        """Receive the next result, unless another thread has already received the one that is waited for."""
        with self._receiving:
            if until.done():
                return
            execution = self._in_progress[0]
            outputs, error = None, None
            try:
                outputs = self._transport.receive(execution)
            except TransportClosed as closed:
                self._fail(closed.error)
                return
            except HalError as failed:
                error = failed
                execution.clear_buffers()
            except BaseException:
                # results can no longer be matched to executions
                self._fail(general_failure("an interrupt has closed the burst; open a new one"))
                raise
            self._in_progress.popleft()
            _settle(execution.future, outputs, error)

    def _fail(self, error: HalError) -> None:
        with self._sending:
            self._error = self._error or error
            while self._in_progress:
                _settle(self._in_progress.popleft().future, None, error)
        self._finalizer()

    def _read(self) -> None:
        """Read the results of `submit`, until there is no work for a while."""
        end = time.monotonic() + READER_IDLE_S
        while True:
            with contextlib.suppress(IndexError):
                while True:
                    self._receive_next(self._in_progress[0].future)
                    end = time.monotonic() + READER_IDLE_S
            with self._submitted:
                if self._in_progress:
                    continue
                if self._error is not None or not self._submitted.wait(end - time.monotonic()):
                    self._reader = None
                    return

    def close(self) -> None:
        """Wait for the executions in progress, then close the burst. A second call does nothing."""
        with contextlib.suppress(IndexError):
            while True:
                self._receive_next(self._in_progress[0].future)
        self._fail(HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the burst has been closed"))

    def __enter__(self) -> "Burst":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return description(self, self._io.description, closed=self._error is not None)


def _settle(future: Future[Any] | PendingResult, outputs: AnyOutputs | None, error: HalError | None) -> None:
    """Set the outcome of a future, unless it was cancelled."""
    if isinstance(future, PendingResult):
        future.outputs, future.error = outputs, error
        return
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        assert outputs is not None
        future.set_result(outputs)
