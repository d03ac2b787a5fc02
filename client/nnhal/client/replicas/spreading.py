"""Executions that spread over replicas, for both clients."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic

from nnhal.client.core.arrays import Inputs
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.replicas.kept_inputs import KeptInputs
from nnhal.client.replicas.replica_set import D, P, Replica, ReplicaSet, may_repeat, no_replica_error
from nnhal.errors import HalError
from nnhal.types import AnyArray


class ReplicatedBurstBase(Generic[D, P]):
    """Burst with a stream to each replica. Executions run in any order, because they run on several services."""

    def __init__(self, replicas: ReplicaSet[D, P], hedge: float | None) -> None:
        self._replicas = replicas
        self._hedge = hedge
        self._bursts: dict[Replica[D, P], Any] = {}
        self._kept: KeptInputs[Replica[D, P]] = KeptInputs()

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. Its bytes are sent to each replica only once, with their first use."""
        return self._kept.add({replica: burst.keep(array) for replica, burst in self._bursts.items()})

    def _start(
        self, inputs: Inputs, deadline: float | None, future: Any, call_later: Callable[[float, Any], Any]
    ) -> "SpreadExecution[D, P]":
        """Send an execution to the first replica. `call_later` calls a function, unless its result is cancelled."""
        end = NO_DEADLINE if deadline is None else SharedDeadline(deadline)

        def send(replica: Replica[D, P]) -> Any:
            return self._bursts[replica].submit(self._kept.of(replica, inputs), deadline=end.remaining)

        spread = SpreadExecution(self._replicas, send, end, future)
        if (failure := spread.launch()) is not None:
            raise failure
        if self._hedge is not None and len(self._bursts) > 1:
            timer = call_later(self._hedge, spread.hedge)
            future.add_done_callback(lambda _: timer.cancel())
        return spread


class SpreadExecution(Generic[D, P]):
    """An execution that may be sent to several replicas: after a failure, or because an answer takes long.

    Args:
        replicas: the replicas.
        send: sends it to a replica, and returns a future.
        deadline: the deadline of all attempts.
        future: takes the first outputs that arrive. All futures are those of threads, or those of asyncio.

    Attributes:
        attempts: the futures of all attempts.
    """

    def __init__(
        self, replicas: ReplicaSet[D, P], send: Callable[[Replica[D, P]], Any], deadline: SharedDeadline, future: Any
    ) -> None:
        self.future = future
        self.attempts: list[Any] = []
        self._replicas = replicas
        self._send = send
        self._deadline = deadline
        self._lock = threading.Lock()
        self._tried: list[Replica[D, P]] = []
        self._in_progress = 0

    def hedge(self) -> None:
        """Send it to another replica, if there is no answer yet."""
        if not self.future.done():
            self._launch_quietly()

    def _launch_quietly(self) -> bool:
        """Send it to another replica, and return whether that succeeded."""
        try:
            return self.launch() is None
        except HalError:  # the deadline is too near
            return False

    def launch(self) -> HalError | None:
        """Send it to replicas that it was not sent to, until one takes it. Return the last error if none does.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be expected in time; or an input is invalid.
        """
        failure = no_replica_error()
        while True:
            with self._lock:
                begun = self._replicas.begin(self._tried, self._deadline)
                if begun is None:
                    return failure
                self._tried.append(begun[0])
                self._in_progress += 1
            start = time.monotonic()
            try:
                sent = self._send(begun[0])
            except BaseException as error:
                self._end(*begun, None)
                if not (isinstance(error, HalError) and may_repeat(error)):
                    raise
                failure = error
                continue
            self.attempts.append(sent)
            sent.add_done_callback(partial(self._finish, *begun, start))
            return None

    def _finish(self, replica: Replica[D, P], count: int, start: float, sent: Any) -> None:
        """Take the outcome of an attempt."""
        if sent.cancelled():
            self._end(replica, count, None)
            self.future.cancel()
            return
        error = sent.exception()
        is_last = self._end(replica, count, None if error else time.monotonic() - start)
        if self.future.done() or (error and may_repeat(error) and self._launch_quietly()):
            return
        with self._lock:
            if self.future.done():  # another attempt has set it meanwhile
                return
            if error is None:
                self.future.set_result(sent.result())
            elif is_last:
                self.future.set_exception(error)

    def _end(self, replica: Replica[D, P], count: int, seconds: float | None) -> bool:
        """Count the end of an attempt, and return whether it was the last one in progress."""
        self._replicas.end(replica, count, seconds)
        with self._lock:
            self._in_progress -= 1
            return self._in_progress == 0
