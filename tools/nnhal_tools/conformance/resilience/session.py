"""Session that is at work when a process of the service ends."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress

import grpc

from nnhal.v1 import session_pb2
from nnhal_tools.conformance.check import ConnectionLost, NotServiceSpecific, Skipped, UnsupportedCase
from nnhal_tools.conformance.device.calls import WATCHDOG_S, outcome_from_error, required_call_error
from nnhal_tools.conformance.device.target import Target

Step = Callable[[], None]
"""Makes a call and checks its result. Raises ConnectionLost if the call ended with the service."""

Work = Callable[["SessionAtWork"], AbstractContextManager[Step]]
"""Prepares what a session needs to work, and yields the step that it repeats."""

POLL_S = 0.1

JOIN_S = 30.0
"""Time limit in seconds for a thread to notice that its channel is closed."""


class SessionAtWork:
    """Session that repeats a step in a thread until the step fails or the session is closed.

    Attributes:
        name: the work, in words.
        at_work: set as soon as the step has succeeded once, by the step itself where that is too late, or at the end
            of the thread.
        ended: set when the stream of the session has ended.
        closing: the last event of the stream, if it says why the session ends.
        finished: set when the thread has ended.
        closed: set when the check stops the session. Errors of later steps do not count.
        is_endless: set by a step that never succeeds.
        last_success: the time at which the last successful step began; 0 before the first.
    """

    def __init__(self, name: str, target: Target, work: Work) -> None:
        self.name, self.target = name, target
        self.at_work, self.ended = threading.Event(), threading.Event()
        self.finished, self.closed = threading.Event(), threading.Event()
        self.closing: session_pb2.SessionClosing | None = None
        self.error: BaseException | None = None
        self.is_endless = False
        self.last_success = 0.0
        self._objects = ExitStack()
        self._step = self._objects.enter_context(work(self))
        self._threads = [
            threading.Thread(target=function, name=f"nnhal-{name}", daemon=True)
            for function in (self._watch, self._repeat)
        ]
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        try:
            for event in self.target.stream:
                if event.HasField("closing"):
                    self.closing = event.closing
        except grpc.RpcError:
            pass  # the end of the stream
        self.ended.set()

    def _repeat(self) -> None:
        try:
            while not self.closed.is_set():
                began = time.monotonic()
                self._step()
                self.last_success = began
                self.at_work.set()
        except BaseException as error:
            if not (self.is_endless and self.closed.is_set()):
                self.error = self._checked(error)
        self.finished.set()
        self.at_work.set()

    def _checked(self, error: BaseException) -> BaseException:
        """Return the error of a step as one of the harness."""
        if isinstance(error, grpc.RpcError):
            return _check_error(error)
        if isinstance(error, Skipped) and self.last_success:  # for example, the data socket is not there any more
            return ConnectionLost(str(error))
        return error

    def await_end(self) -> None:
        """Wait in a step until the session has ended or is stopped.

        Raises:
            ConnectionLost: it has ended.
        """
        while not self.closed.is_set():
            if self.ended.wait(POLL_S):
                raise ConnectionLost("the process has ended after the answer")

    def stop(self) -> None:
        """Stop work after the present step, which is cut off if it has no end of its own."""
        self.closed.set()
        if self.is_endless:
            self.close()
        self.finished.wait(WATCHDOG_S)

    def close(self) -> None:
        """Close the session and what it has prepared. A second call does nothing."""
        self.closed.set()
        if not self.ended.is_set():  # ends its executions at once, also those over the data socket
            with suppress(grpc.RpcError):
                self.target.start("Session.Close", timeout=JOIN_S)
        self._objects.close()
        self.target.stream.cancel()
        self.target.channel.close()
        for thread in self._threads:
            thread.join(JOIN_S)


def _check_error(error: grpc.RpcError) -> Exception:
    """Return the error of a call as an error of the harness."""
    try:
        return required_call_error("a call", outcome_from_error(error))
    except (NotServiceSpecific, UnsupportedCase) as converted:
        return converted
