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
import queue
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from typing import Any, Unpack, overload

from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import (
    AnyOutputs,
    BufferInputs,
    BufferOutputs,
    BurstOptions,
    ExecuteOptions,
    OutputBuffers,
)
from nnhal.client.core.burst import CachedInputs, PendingExecution, burst_closed_error
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline, latest_deadline
from nnhal.client.core.handles import description, release_with
from nnhal.client.core.reconnect import MAX_RETRIES
from nnhal.client.forks import forked_error, watch_forks
from nnhal.client.sync.burst_transport import (
    BurstTransport,
    Pending,
    PendingResult,
    TransportClosed,
    open_burst_transport,
)
from nnhal.client.sync.connection import Connection
from nnhal.client.sync.reconnect import ReconnectingSession
from nnhal.client.sync.reusable import RenewableModel
from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray

READER_IDLE_S = 1.0
"""Seconds that the thread that reads the results of `submit` waits for more work."""


def new_burst(session: ReconnectingSession, model: RenewableModel, io: ModelIO) -> "Burst":
    """Open a burst. It keeps the prepared model alive."""
    return Burst(session, model, io)


class Burst:
    """Burst of executions. Thread safe. Close it, or use it as a context manager; closing waits for its executions.

    If its session is lost, it is opened again, and executions without buffers are repeated.
    """

    def __init__(self, session: ReconnectingSession, model: RenewableModel, io: ModelIO) -> None:
        self._session = session
        self._model = model
        self._io = io
        self._cached_inputs = CachedInputs()
        self._create_locks()
        self._in_progress: deque[Pending] = deque()
        self._reader: threading.Thread | None = None
        # wakes the reader; a Condition may stay locked after an interrupt
        self._submitted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._error: HalError | None = None
        self._failure: HalError | None = None
        self._finalizer: weakref.finalize[Any, Any] = release_with(self, _nothing)
        session.repeat(lambda connection: self._open_on(connection, NO_DEADLINE), NO_DEADLINE)
        watch_forks(self)

    def _create_locks(self) -> None:
        self._sending = threading.RLock()
        self._receiving = threading.Lock()
        self._reading = threading.Lock()

    def leave_to_parent(self) -> None:
        """Fail all executions, because this process is a fork of the one that has sent them. Send nothing."""
        self._create_locks()  # threads of the parent may hold them
        self._finalizer.detach()
        self._fail(forked_error())

    def _open_on(self, connection: Connection, deadline: SharedDeadline) -> None:
        """Open the transport on a connection."""
        remote = self._model.prepare_on(connection, deadline)
        self._transport = transport = open_burst_transport(*remote, self._io, self._cached_inputs)
        self._connection = connection
        self._finalizer.detach()
        self._finalizer = release_with(self, transport.close)

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[BurstOptions]) -> Outputs: ...

    @overload
    def execute(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[BurstOptions]
    ) -> BufferOutputs: ...

    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
        copy: bool = True,
    ) -> AnyOutputs:
        """Run the model and wait. Result and errors are those of `PreparedModel.execute`.

        Args:
            inputs: as for `PreparedModel.execute`, or the arrays of `inputs`.
            outputs: as for `PreparedModel.execute`.
            deadline: seconds from now.
            measure_timing: whether to fill `timing` of the result.
            copy: whether to copy the outputs. Otherwise, they may be read-only and are valid until the next call of
                this burst.
        """
        result = PendingResult()
        execution: Pending = PendingExecution.of(self._io, inputs, outputs, result)
        execution.copy = copy
        self._send(execution, deadline, measure_timing)
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
        execution: Pending = PendingExecution.of(self._io, inputs, outputs, future)
        execution.copy_arrays()  # to be sent again if the service is lost
        self._send(execution, deadline, measure_timing)
        with self._reading:
            if self._reader is None:
                reader = threading.Thread(target=self._read, name="nnhal-burst", daemon=True)
                reader.start()  # after an interrupt here, it may never run; the next call starts another one
                self._reader = reader
        self._submitted.put(None)
        return future

    @property
    def inputs(self) -> list[AnyArray]:
        """An array for each input. Write the inputs of the next execution into them, and pass them to `execute`.

        On the same machine, they are in shared memory, so that nothing is copied. They belong to the next execution
        only: get them again for each one.

        Raises:
            HalError: INVALID_ARGUMENT: the model does not fix the shape of an input; or the burst has been closed.
        """
        while True:
            transport = self._transport
            try:
                while (oldest := self._oldest_if_full()) is not None:
                    self._receive_next(oldest)
                with self._sending:
                    try:
                        return self._transport.inputs()
                    except (TransportClosed, HalError):
                        raise
                    except BaseException:
                        self._fail_interrupted()
                        raise
            except TransportClosed as closed:
                with self._receiving:
                    self._recover(transport, closed.error.with_traceback(None))

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. The bytes of the copy are sent only once, with its first use."""
        with self._sending:
            return self._cached_inputs.add(array)

    def release(self, array: AnyArray) -> None:
        """Release an array of `keep`."""
        with self._sending:
            identifier = self._cached_inputs.remove(array)
            if identifier < 0 or self._error is not None or self._failure is not None:
                return
            try:
                if (response := self._transport.release(identifier)) is not None:
                    self._in_progress.append(response)
            except BaseException:
                self._fail_interrupted()
                raise

    def _send(self, execution: Pending, deadline: float | None, measure_timing: bool) -> None:
        if deadline is not None:
            execution.deadline = SharedDeadline(deadline)
        execution.measure_timing = measure_timing
        while True:
            transport = self._transport
            try:
                while (oldest := self._try_send(execution)) is not None:
                    self._receive_next(oldest)
                return
            except TransportClosed as closed:
                failure = closed.error.with_traceback(None)
            except HalError as error:
                failure = error.with_traceback(None)
            if execution.buffered is not None or execution.retries >= MAX_RETRIES or not self._is_lost(failure):
                raise failure
            execution.retries += 1
            with self._receiving:
                self._recover(transport, failure, execution.deadline)

    def _try_send(self, execution: Pending) -> Future[Any] | PendingResult | None:
        """Send an execution and return None; or, if too many are in progress, return the oldest to wait for.

        Raises:
            TransportClosed: the transport cannot be used any more.
            HalError: the burst has been closed, or the service accepts no more memory.
        """
        with self._sending:
            if (oldest := self._oldest_if_full()) is not None:
                return oldest
            try:
                self._transport.send(execution, execution.deadline.remaining, execution.measure_timing)
                self._in_progress.append(execution)
            except (TransportClosed, HalError):
                raise
            except BaseException:
                self._fail_interrupted()
                raise
            return None

    def _oldest_if_full(self) -> Future[Any] | PendingResult | None:
        """Return the oldest execution if too many are in progress.

        Raises:
            TransportClosed: the transport cannot be used any more.
            HalError: the burst has been closed.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._failure is not None:
            raise TransportClosed(self._failure)
        return self._in_progress[0].future if len(self._in_progress) >= self._transport.depth else None

    def _receive_next(self, until: Future[Any] | PendingResult) -> None:
        """Receive the next result, unless another thread has already received the one that is waited for."""
        with self._receiving:
            if until.done() or not self._in_progress:
                return
            if (failure := self._receive_oldest()) is not None:
                self._recover(self._transport, failure)

    def _receive_oldest(self) -> HalError | None:
        """Receive the result of the oldest execution. Return an error that means that the service may be lost."""
        execution = self._in_progress[0]
        try:
            outputs, error = None, None
            try:
                outputs = self._transport.receive(execution)
            except HalError as failed:
                if execution.buffered is None and execution.retries < MAX_RETRIES and self._is_lost(failed):
                    return failed.with_traceback(None)
                error = failed
                execution.clear_buffers()
            _settle(execution.future, outputs, error)
            self._in_progress.popleft()
        except TransportClosed as closed:
            return closed.error.with_traceback(None)
        except BaseException:
            self._fail_interrupted()
            raise
        return None

    def _is_lost(self, error: HalError) -> bool:
        return self._error is None and self._session.is_lost(error, self._connection)

    def _recover(self, transport: BurstTransport, failure: HalError, deadline: SharedDeadline | None = None) -> None:
        """Open the burst again after a failure of its transport, and send the executions in progress again.

        The caller has the lock `_receiving`. If the service does not come back, they fail. The next execution then
        tries again.

        Args:
            transport: the transport that failed.
            failure: its failure.
            deadline: deadline of an execution that was not sent.
        """
        if not self._is_lost(failure):
            self._fail(failure)
            return
        with self._sending:
            if self._transport is not transport and self._failure is None:
                return  # another thread has done it
            transport.close()
            self._failure = failure
            waiting, self._in_progress = self._in_progress, deque()
            deadlines = [execution.deadline for execution in waiting] + ([deadline] if deadline else [])
            try:
                self._send_again(waiting, failure, latest_deadline(deadlines))
                self._failure = None
            except HalError as error:
                self._failure = error.with_traceback(None)
                self._settle_all(waiting, error)
            except BaseException:
                self._settle_all(waiting, general_failure("an interrupt has ended the execution"))
                raise

    def _send_again(self, waiting: deque[Pending], failure: HalError, deadline: SharedDeadline) -> None:
        """Open the burst again and send executions again, each at most `MAX_RETRIES` times.

        Args:
            waiting: the executions; those that are sent or fail are removed.
            failure: the reason.
            deadline: end of the time to wait for the service.

        Raises:
            HalError: the service does not come back.
        """
        while True:
            self._drop_unrepeatable(waiting, failure)
            self._session.repeat(
                lambda connection: self._open_on(connection, deadline), deadline, self._connection, failure
            )
            try:
                while waiting:
                    if len(self._in_progress) < self._transport.depth:
                        self._send_oldest(waiting)
                    elif (lost := self._receive_oldest()) is not None:
                        raise TransportClosed(lost)
                return
            except TransportClosed as closed:
                failure = closed.error.with_traceback(None)
            waiting.extendleft(reversed(self._in_progress))
            self._in_progress.clear()

    def _send_oldest(self, waiting: deque[Pending]) -> None:
        """Send the first of some executions, and remove it.

        Raises:
            TransportClosed: the transport cannot be used any more.
        """
        execution = waiting[0]
        try:
            self._transport.send(execution, execution.deadline.remaining, execution.measure_timing)
        except HalError as error:
            if self._is_lost(error):
                raise TransportClosed(error) from None
            _settle(execution.future, None, error)
        else:
            self._in_progress.append(execution)
        waiting.popleft()

    def _drop_unrepeatable(self, waiting: deque[Pending], failure: HalError) -> None:
        """Fail the executions that cannot be sent again, and remove them."""
        for _ in range(len(waiting)):
            execution = waiting.popleft()
            if execution.buffered is None and execution.retries < MAX_RETRIES:
                execution.retries += 1
                waiting.append(execution)
            else:
                execution.clear_buffers()
                _settle(execution.future, None, failure)

    def _settle_all(self, waiting: deque[Pending], error: HalError) -> None:
        for execution in (*self._in_progress, *waiting):
            execution.clear_buffers()
            if not _is_settled(execution.future):  # an interrupt may come between its outcome and its removal
                _settle(execution.future, None, error)
        self._in_progress.clear()
        waiting.clear()

    def _fail_interrupted(self) -> None:
        """Close the burst: results can no longer be matched to executions, or its requests are half defined."""
        self._fail(general_failure("an interrupt has closed the burst; open a new one"))

    def _fail(self, error: HalError) -> None:
        with self._sending:
            self._error = self._error or error
            self._settle_all(deque(), error)
        self._finalizer()

    def _read(self) -> None:
        """Read the results of `submit`, until there is no work for a while."""
        while True:
            with contextlib.suppress(IndexError):
                while True:
                    self._receive_next(self._in_progress[0].future)
            try:
                self._submitted.get(timeout=READER_IDLE_S)
            except queue.Empty:
                with self._reading:
                    if not self._in_progress:
                        self._reader = None
                        return

    def close(self) -> None:
        """Wait for the executions in progress, then close the burst. A second call does nothing."""
        with contextlib.suppress(IndexError):
            while True:
                self._receive_next(self._in_progress[0].future)
        self._fail(burst_closed_error())

    def __enter__(self) -> "Burst":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return description(self, self._io.description, closed=self._error is not None)


def _nothing() -> None:
    """Close nothing: there is no transport yet."""


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


def _is_settled(future: Future[Any] | PendingResult) -> bool:
    return future.done() and not (isinstance(future, Future) and future.cancelled())
