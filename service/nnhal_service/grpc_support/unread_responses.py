"""Memory of responses that clients have not read.

gRPC keeps a response until the client has room for it. A client may have no room for any of them, on purpose or because
it hangs, and still send requests. So large responses count against the memory quota of their session. They are
cancelled if the session reads none of them for some time.
"""

import threading
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial

import grpc

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timer, Timers
from nnhal_service.log import event
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry

COUNTED_BYTES = 2**14
"""Smallest response that counts. A call with a smaller one takes about as much memory as one without a response."""
COPIES = 2
"""Number of copies of a response until it is sent: one in Python, and one in gRPC."""

_UNCOUNTED = nullcontext()


@dataclass(slots=True, eq=False)
class _SessionResponses:
    """Unread responses of one session."""

    session: Session
    progress_ns: int = 0
    calls: set[grpc.ServicerContext] = field(default_factory=set)
    timer: Timer | None = None


class UnreadResponses:
    """Counts large responses until their clients have read them. Thread safe.

    Args:
        timeout_s: seconds until the responses of a session that reads none of them are cancelled.
    """

    def __init__(self, sessions: SessionRegistry, quota: MemoryQuota, timeout_s: float, timers: Timers) -> None:
        self._sessions = sessions
        self._quota = quota
        self._timeout_ns = int(timeout_s * 1e9)
        self._timers = timers
        self._unread: dict[bytes, _SessionResponses] = {}
        self._lock = threading.Lock()

    def count(self, token: bytes, context: grpc.ServicerContext, size: int) -> None:
        """Count a response of `size` bytes until it is sent, by the token of its session. Call it before the call ends.

        Raises:
            SessionLostError: the session has ended.
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes.
        """
        if size < COUNTED_BYTES:
            return
        session = self._sessions.find(token)
        reservation = self._quota.reserve(session, COPIES * size, "the response")

        def finish() -> None:
            with self._lock:
                unread.calls.discard(context)
                unread.progress_ns = now_ns()
            reservation.release()

        with self._lock:
            found = self._unread.get(token)
        unread = self._watch(token, session) if found is None else found
        with self._lock:
            if not unread.calls:
                unread.progress_ns = now_ns()
            unread.calls.add(context)
        if not context.add_callback(finish):
            finish()

    def sending(self, session: Session, context: grpc.ServicerContext, size: int) -> AbstractContextManager[object]:
        """Count a response of a stream from now on. The context that is returned is that in which it is sent.

        Args:
            session: the session.
            context: of the call, which is cancelled if the client does not read the response in time.
            size: of the response in bytes.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes.
        """
        if size < COUNTED_BYTES:
            return _UNCOUNTED
        stack = ExitStack()
        stack.callback(self._quota.reserve(session, COPIES * size, "the response").release)
        stack.callback(self._timers.call_at(now_ns() + self._timeout_ns, partial(_cancel, context)).cancel)
        return stack

    def _watch(self, token: bytes, session: Session) -> _SessionResponses:
        """Return the entry of a session, which is created if it does not exist."""
        with self._lock:
            if (unread := self._unread.get(token)) is not None:
                return unread
            unread = self._unread[token] = _SessionResponses(session)
            # one timer for each session, not for each response: it stays when all responses have been read
            unread.timer = self._timers.call_at(now_ns() + self._timeout_ns, partial(self._check, token))
        session.on_close(lambda reason: self._forget(token))
        return unread

    def _forget(self, token: bytes) -> None:
        """Remove the entry of a session that has ended."""
        with self._lock:
            unread = self._unread.pop(token, None)
        if unread is not None and unread.timer is not None:
            unread.timer.cancel()

    def _check(self, token: bytes) -> None:
        """Cancel the responses of a session if it has read none of them in time."""
        now = now_ns()
        stalled: list[grpc.ServicerContext] = []
        with self._lock:
            unread = self._unread.get(token)
            if unread is None:  # the session has ended
                return
            due_ns = unread.progress_ns + self._timeout_ns if unread.calls else now + self._timeout_ns
            if unread.calls and now >= due_ns:
                stalled, due_ns = list(unread.calls), now + self._timeout_ns
            unread.timer = self._timers.call_at(due_ns, partial(self._check, token))
        if stalled:
            seconds = self._timeout_ns / 1e9
            event("responses-stalled", session=unread.session.name, responses=len(stalled), seconds=seconds)
        for context in stalled:
            context.cancel()


def _cancel(context: grpc.ServicerContext) -> None:
    context.cancel()
