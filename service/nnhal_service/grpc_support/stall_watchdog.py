"""Watchdog that cancels calls whose client has stalled.

A call occupies a thread while it waits for its client: for the request, for the next chunk of an upload, or until the
client has room for a response. Without the watchdog, clients that stop in the middle would occupy all threads of a pool
for as long as their connections live.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import grpc

from nnhal.errors import invalid_argument
from nnhal.grpc_internals.server_calls import EarlyRequest
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.log import event

T = TypeVar("T")

_CANCELLED = object()

PROGRESS_BYTES = 2**16
"""Bytes that an upload must bring within the timeout, unless it ends. Single bytes could keep a thread for ever."""
QUIET_CHECKS, LATE_CHECKS = 2, 20
"""Number of checks after which a surplus call is cancelled: if no message came for any call meanwhile, and in any case.

While messages come, it may be gRPC's thread that is late, for example because a client resets streams rapidly."""


@dataclass(slots=True, eq=False)
class _ClientWait:
    """A call that waits for its client.

    Attributes:
        checks: number of checks that have found it waiting.
    """

    context: grpc.ServicerContext
    since_ns: int
    checks: int = 0


def _nothing() -> None:
    """End nothing."""


class StallWatchdog:
    """Cancels calls of one thread pool that wait too long for their clients. Thread safe.

    Args:
        timeout_s: seconds that a message may take, or PROGRESS_BYTES of an upload in smaller chunks.
        capacity: number of calls that may wait for up to the timeout. Of more, those that have waited longest are
            cancelled after QUIET_CHECKS or LATE_CHECKS.
        check_s: seconds between two checks.
    """

    def __init__(self, timeout_s: float, timers: Timers, capacity: int, check_s: float) -> None:
        self._timeout_ns = int(timeout_s * 1e9)
        self._timers = timers
        self._capacity = capacity
        self._check_ns = int(check_s * 1e9)
        self._waits: dict[_ClientWait, None] = {}  # in the order of their begin; changed without the lock
        self._received = self._received_before = 0
        self._quiet_checks = 0
        self._is_scheduled = False
        self._lock = threading.Lock()

    def first(self, requests: Iterator[T], context: grpc.ServicerContext) -> T:
        """Return the only request of a call.

        Raises:
            HalError: INVALID_ARGUMENT: there is none.
        """
        # the request of an EarlyRequest is there, and `begin` has watched its call
        end = _nothing if isinstance(requests, EarlyRequest) else self.begin(context)
        try:
            for request in requests:
                return request
        finally:
            end()
        raise invalid_argument("the call has no request")

    def begin(self, context: grpc.ServicerContext) -> Callable[[], None]:
        """Watch a call that waits for its only request. Return what ends that."""
        wait = _ClientWait(context, now_ns())
        self._waits[wait] = None
        if len(self._waits) > 1 and not self._is_scheduled:  # a call that waits alone does no harm: it costs no timer
            self._schedule(wait.since_ns + self._check_ns)
        return lambda: self._end(wait)

    def requests(self, requests: Iterator[T], context: grpc.ServicerContext) -> Iterator[T]:
        """Yield the requests of a stream."""
        return self.receive(requests, context, lambda request: PROGRESS_BYTES)

    def receive(self, chunks: Iterator[T], context: grpc.ServicerContext, size: Callable[[T], int]) -> Iterator[T]:
        """Yield the chunks that a client sends. `size` returns the size of a chunk in bytes."""
        while True:
            received = 0
            with self._watch(context):
                while received < PROGRESS_BYTES:
                    if (chunk := next(chunks, None)) is None:
                        return
                    received += size(chunk)
                    yield chunk

    def send(self, chunks: Iterable[T], context: grpc.ServicerContext) -> Iterator[T]:
        """Yield the chunks that a client reads."""
        for chunk in chunks:
            with self._watch(context):
                yield chunk

    def wrap_send(self, send: Callable[[T], None], context: grpc.ServicerContext) -> Callable[[T], None]:
        """Wrap the function that sends the responses of a non-blocking handler; None ends its stream."""

        def watched(message: T) -> None:
            if message is None:  # the end waits for no client
                send(message)
                return
            with self._watch(context):
                send(message)

        return watched

    @contextmanager
    def _watch(self, context: grpc.ServicerContext) -> Iterator[None]:
        wait = _ClientWait(context, now_ns())
        self._waits[wait] = None
        if not self._is_scheduled:
            self._schedule(wait.since_ns + self._check_ns)
        try:
            yield
        finally:
            self._end(wait)

    def _end(self, wait: _ClientWait) -> None:
        if self._waits.pop(wait, _CANCELLED) is not _CANCELLED:
            self._received += 1  # without a lock: whether it changes is enough

    def _schedule(self, instant_ns: int) -> None:
        with self._lock:
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self._timers.call_at(instant_ns, self._check)

    def _check(self) -> None:
        """Cancel the calls that have waited too long."""
        self._is_scheduled = False  # first: a call that begins to wait from now on schedules a check
        now = now_ns()
        waits = list(self._waits)
        self._quiet_checks = self._quiet_checks + 1 if self._received == self._received_before else 0
        self._received_before = self._received
        allowed_checks = QUIET_CHECKS if self._quiet_checks >= QUIET_CHECKS else LATE_CHECKS
        surplus = len(waits) - self._capacity
        stalled = []
        for number, wait in enumerate(waits):
            # counted, not timed: after a pause of the whole process, requests that have come are not yet read
            wait.checks += 1
            if (number < surplus and wait.checks >= allowed_checks) or now - wait.since_ns >= self._timeout_ns:
                stalled.append(wait)
        for wait in stalled:
            self._waits.pop(wait, None)
            wait.context.cancel()
        if stalled:
            seconds = (now - stalled[0].since_ns) / 1e9
            event("transfer-stalled", calls=len(stalled), peer=stalled[0].context.peer(), seconds=seconds)
        if self._waits:
            self._schedule(now + self._check_ns)
