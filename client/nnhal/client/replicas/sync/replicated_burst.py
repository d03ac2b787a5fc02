"""Burst on several replicas: executions spread over them, and those that fail with a service are repeated."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.replicas.kept_inputs import KeptInputs
from nnhal.client.replicas.replica_set import Replica, ReplicaSet, may_repeat, no_replica_error
from nnhal.client.sync.burst import Burst
from nnhal.client.sync.device import Device, PreparedModel
from nnhal.errors import HalError
from nnhal.types import AnyArray

DeviceReplica: TypeAlias = Replica[Device, PreparedModel]
DeviceReplicas: TypeAlias = ReplicaSet[Device, PreparedModel]


class ReplicatedBurst:
    """Burst with a stream to each replica. Thread safe. Close it, or use it as a context manager.

    Executions run in any order, because they run on several services.

    Args:
        replicas: the replicas.
        hedge: seconds after which an execution without an answer is sent to another replica, too; None: never.
    """

    def __init__(self, replicas: DeviceReplicas, hedge: float | None) -> None:
        self._replicas = replicas
        self._hedge = hedge
        self._bursts: dict[DeviceReplica, Burst] = {}
        self._kept: KeptInputs[DeviceReplica] = KeptInputs()
        try:
            for replica in replicas.replicas:
                self._bursts[replica] = replica.prepared.burst()
        except BaseException:
            self.close()
            raise

    def execute(self, inputs: Inputs, *, deadline: float | None = None) -> Outputs:
        """Run the model on one of the replicas.

        Args:
            inputs: as for `PreparedModel.execute`, without buffers.
            deadline: seconds from now.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT, without asking a service: no replica can be expected to answer in time.
                Otherwise as for `PreparedModel.execute`.
        """
        return self.submit(inputs, deadline=deadline).result()

    def submit(self, inputs: Inputs, *, deadline: float | None = None) -> "Future[Outputs]":
        """Send an execution to one of the replicas without waiting for it. Inputs may change at once.

        Returns:
            a future of the outputs.

        Raises:
            HalError: as for `execute`.
        """
        end = NO_DEADLINE if deadline is None else SharedDeadline(deadline)
        frozen = self._kept.frozen(inputs)

        def send(replica: DeviceReplica) -> "Future[Outputs]":
            return self._bursts[replica].submit(self._kept.of(replica, frozen), deadline=end.remaining)

        spread = _SpreadExecution(self._replicas, send, end)
        spread.start()
        if self._hedge is not None and len(self._bursts) > 1:
            timer = threading.Timer(self._hedge, spread.hedge)
            timer.daemon = True
            spread.future.add_done_callback(lambda _: timer.cancel())
            timer.start()
        return spread.future

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. Its bytes are sent to each replica only once, with their first use."""
        return self._kept.add({replica: burst.keep(array) for replica, burst in self._bursts.items()})

    def release(self, array: AnyArray) -> None:
        """Release an array of `keep`, when no execution that uses it is in progress."""
        for replica, copy in self._kept.remove(array).items():
            self._bursts[replica].release(copy)

    def close(self) -> None:
        """Wait for the executions in progress, then close the burst on all replicas."""
        for burst in self._bursts.values():
            burst.close()

    def __enter__(self) -> "ReplicatedBurst":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SpreadExecution:
    """An execution that may be sent to several replicas: after a failure, or because an answer takes long.

    Attributes:
        future: of its outputs: the first ones that arrive.
    """

    def __init__(
        self, replicas: DeviceReplicas, send: "Callable[[DeviceReplica], Future[Outputs]]", deadline: SharedDeadline
    ) -> None:
        self.future: Future[Outputs] = Future()
        self.future.set_running_or_notify_cancel()
        self._replicas = replicas
        self._send = send
        self._deadline = deadline
        self._lock = threading.Lock()
        self._tried: list[DeviceReplica] = []
        self._in_progress = 0

    def start(self) -> None:
        """Send it to the first replica.

        Raises:
            HalError: it cannot be expected in time, or an input is invalid.
        """
        if (failure := self._launch()) is not None:
            raise failure

    def hedge(self) -> None:
        """Send it to another replica, if there is no answer yet."""
        if not self.future.done():
            self._launch_quietly()

    def _launch_quietly(self) -> bool:
        """Send it to another replica, and return whether that succeeded."""
        try:
            return self._launch() is None
        except HalError:  # the deadline is too near
            return False

    def _launch(self) -> HalError | None:
        """Send it to replicas that it was not sent to, until one takes it. Return the last error if none does.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be expected in time.
        """
        failure = no_replica_error()
        while True:
            with self._lock:
                begun = self._replicas.begin(self._tried, self._deadline)
                if begun is None:
                    return failure
                replica, count = begun
                self._tried.append(replica)
                self._in_progress += 1
            start = time.monotonic()
            try:
                sent = self._send(replica)
            except BaseException as error:
                self._finish_one(replica, count, None)
                if not (isinstance(error, HalError) and may_repeat(error)):
                    raise
                failure = error
                continue
            sent.add_done_callback(self._callback(replica, count, start))
            return None

    def _callback(self, replica: DeviceReplica, count: int, start: float) -> "Callable[[Future[Outputs]], None]":
        def finish(sent: "Future[Outputs]") -> None:
            error = sent.exception()
            is_last = self._finish_one(replica, count, None if error else time.monotonic() - start)
            if self.future.done():
                return
            if error is None:
                self._settle(lambda: self.future.set_result(sent.result()))
            elif may_repeat(error) and self._launch_quietly():
                return
            elif is_last:
                self._settle(lambda: self.future.set_exception(error))

        return finish

    def _finish_one(self, replica: DeviceReplica, count: int, seconds: float | None) -> bool:
        """Count the end of an attempt, and return whether it was the last one in progress."""
        self._replicas.end(replica, count, seconds)
        with self._lock:
            self._in_progress -= 1
            return self._in_progress == 0

    def _settle(self, settle: Callable[[], None]) -> None:
        """Set the result, unless another attempt has set it meanwhile."""
        with self._lock:
            if not self.future.done():
                settle()
