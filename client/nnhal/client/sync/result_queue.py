"""Executions in progress on a transport of a burst. `nnhal.client.aio.result_queue` has the same names for asyncio."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from nnhal.client.core.buffered_execution import AnyOutputs
from nnhal.client.core.burst import PendingExecution, TransportClosed, burst_closed_error
from nnhal.client.core.handles import release_with
from nnhal.client.forks import forked_error, watch_forks
from nnhal.client.sync.connection import Connection
from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray

P = ParamSpec("P")
T = TypeVar("T")


class PendingResult:
    """Minimal result holder for the thread that reads its result itself. A Future costs more than some models run."""

    __slots__ = ("error", "outputs")

    def __init__(self) -> None:
        self.outputs: AnyOutputs | None = None
        self.error: HalError | None = None

    def done(self) -> bool:
        """Return whether there is a result."""
        return self.outputs is not None or self.error is not None

    def set_result(self, outputs: AnyOutputs) -> None:
        """Set the outputs."""
        self.outputs = outputs

    def set_exception(self, error: HalError) -> None:
        """Set the error of the execution."""
        self.error = error

    def result(self) -> AnyOutputs:
        """Return the outputs; there must be a result.

        Raises:
            HalError: the execution failed.
        """
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


Pending: TypeAlias = PendingExecution[PendingResult]
new_result = PendingResult


class BurstTransport(Protocol):
    """Transport of the executions of a burst. At most one thread sends, and one receives, at a time."""

    depth: int
    """Largest number of executions in progress."""

    def send(self, execution: Pending) -> None:
        """Send an execution.

        Raises:
            TransportClosed: the transport cannot be used any more.
            HalError: the service accepts no more memory.
        """

    def release(self, identifier: int) -> bool:
        """Release a cached input. Return whether there will be a response."""

    def receive(self, execution: Pending) -> AnyOutputs:
        """Wait for the outputs of the execution that was sent longest ago.

        Raises:
            TransportClosed: no response will ever come.
            HalError: the execution failed.
        """

    def inputs(self) -> list[AnyArray]:
        """Return an array for each input, into which the caller may write the inputs of the next execution.

        Raises:
            TransportClosed: the transport cannot be used any more.
            HalError: INVALID_ARGUMENT: the shape of an input is not fixed.
        """

    def close(self) -> None:
        """Close the transport."""


class ResultQueue:
    """Executions in progress on a transport. They are sent, and answered, in the order of the calls.

    The threads that wait for results read them, each also those of others that come before its own. An interrupt closes
    the transport: results can no longer be matched to executions, or its requests are half defined.

    Attributes:
        error: why the transport cannot be used any more, or None.
    """

    def __init__(self, transport: BurstTransport, connection: Connection) -> None:
        self.transport = transport
        self.connection = connection
        self.error: HalError | None = None
        self._create_locks()
        self._in_progress: deque[Pending] = deque()
        self._is_retired = False
        self._finalizer = release_with(self, transport.close)
        watch_forks(self)

    def _create_locks(self) -> None:
        self._sending = threading.RLock()
        self._receiving = threading.Lock()

    def leave_to_parent(self) -> None:
        """Fail all executions, because this process is a fork of the one that has sent them. Send nothing."""
        self._create_locks()  # threads of the parent may hold them
        self._finalizer.detach()
        self._fail(forked_error())

    def send(self, execution: Pending) -> None:
        """Send an execution, as soon as fewer than the depth of the transport are in progress.

        Raises:
            HalError: the transport is closed, or the service accepts no more memory.
        """
        self._use(self._send, execution)

    def _send(self, execution: Pending) -> None:
        self.transport.send(execution)
        self._in_progress.append(execution)

    def inputs(self) -> list[AnyArray]:
        """Return an array for each input of the next execution, see `BurstTransport.inputs`.

        Raises:
            HalError: the transport is closed, or the shape of an input is not fixed.
        """
        return self._use(self.transport.inputs)

    def release(self, identifier: int) -> None:
        """Release a cached input."""
        with contextlib.suppress(HalError):  # a closed burst has released all
            self._use(self._release, identifier)

    def _release(self, identifier: int) -> None:
        if self.transport.release(identifier):
            self._in_progress.append(PendingExecution((), PendingResult()))

    def _use(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of the transport, as soon as fewer executions than its depth are in progress.

        Raises:
            HalError: the transport is closed, or the function failed.
        """
        while True:
            with self._sending:
                if self.error is not None:
                    raise self.error.with_traceback(None)
                if len(self._in_progress) < self.transport.depth:
                    try:
                        return function(*args, **kwargs)
                    except TransportClosed as closed:
                        self._fail(closed.error)
                        raise closed.error from None
                    except HalError:
                        raise
                    except BaseException:
                        self._fail(interrupted_error())
                        raise
                oldest = self._in_progress[0]
            self._receive_until(oldest)

    def wait(self, execution: Pending) -> AnyOutputs:
        """Wait for the outputs of an execution that was sent.

        Raises:
            HalError: it failed.
        """
        while not execution.future.done():
            self._receive_until(execution)
        return execution.future.result()

    def _receive_until(self, execution: Pending) -> None:
        """Receive the next result, unless another thread has already received the one that is waited for."""
        with self._receiving:
            if self._in_progress and not execution.future.done():
                self._receive_oldest()
        if self._is_retired and not self._in_progress:
            self._finalizer()

    def _receive_oldest(self) -> None:
        execution = self._in_progress[0]
        try:
            try:
                outputs = self.transport.receive(execution)
            except HalError as error:
                execution.fail(error)
            else:
                execution.succeed(outputs)
            if self._in_progress:  # otherwise, another thread has closed the transport
                self._in_progress.popleft()
        except TransportClosed as closed:
            self._fail(closed.error.with_traceback(None))
        except BaseException:
            self._fail(interrupted_error())
            raise

    def _fail(self, error: HalError) -> None:
        """Close the transport, with the error of all executions in progress and to come."""
        with self._sending:
            self.error = self.error or error
            for execution in self._in_progress:
                execution.fail(error)
            self._in_progress.clear()
        self._finalizer()

    def retire(self) -> None:
        """Close the transport when the executions in progress have ended. There will be no others."""
        self._is_retired = True
        if not self._in_progress:
            self._finalizer()

    def close(self) -> None:
        """Wait for the executions in progress, then close the transport."""
        with contextlib.suppress(IndexError):
            while True:
                self._receive_until(self._in_progress[0])
        self._fail(burst_closed_error())


def interrupted_error() -> HalError:
    """Return the error of the executions of a burst after Ctrl-C."""
    return general_failure("an interrupt has closed the burst; open a new one")
