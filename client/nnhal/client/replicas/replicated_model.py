"""A model with several replicas: executions spread over them, and those that fail with a service are repeated."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any

import numpy as np

from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline, is_session_lost
from nnhal.client.replicas.spreading import Workload, choose_replica
from nnhal.client.sync.burst import Burst
from nnhal.client.sync.device import Device, PreparedModel
from nnhal.errors import HalError
from nnhal.types import ErrorStatus

_BUSY = (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, ErrorStatus.DEVICE_UNAVAILABLE)
"""Statuses of executions that another replica may carry out."""


class Replica:
    """A replica: its device, its prepared model, and the burst for all executions.

    If its service dies, the device goes on with another service, which prepares the model again.

    Attributes:
        device: the device.
        prepared: the model.
        workload: its executions.
    """

    def __init__(self, device: Device, prepared: PreparedModel) -> None:
        self.device = device
        self.prepared = prepared
        self.workload = Workload()
        self.burst: Burst = prepared.burst()

    @property
    def member(self) -> str:
        """Id of the member of the fleet that serves it."""
        return self.device._connection.member

    def close(self) -> None:
        """Free everything."""
        self.burst.close()
        self.prepared.close()
        self.device.close()


class ReplicatedModel:
    """Model that is prepared on several services. Thread safe. Close it, or use it as a context manager.

    Args:
        replicas: the replicas, at least one.
        hedge: seconds after which an execution without an answer is sent to another replica, too; None: never.
    """

    def __init__(self, replicas: Sequence[Replica], hedge: float | None = None) -> None:
        self._replicas = tuple(replicas)
        self._hedge = hedge
        self._random = Random()
        self._lock = threading.Lock()

    @property
    def members(self) -> list[str]:
        """Ids of the members of the fleet that serve the replicas."""
        return [replica.member for replica in self._replicas]

    @property
    def outstanding(self) -> list[int]:
        """Number of executions in progress, for each replica."""
        with self._lock:
            return [replica.workload.outstanding for replica in self._replicas]

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
        spread = _SpreadExecution(self, _copied(inputs), end)
        spread.start()
        if self._hedge is not None and len(self._replicas) > 1:
            timer = threading.Timer(self._hedge, spread.hedge)
            timer.daemon = True
            spread.future.add_done_callback(lambda _: timer.cancel())
            timer.start()
        return spread.future

    def begin(self, avoid: Sequence[Replica], deadline: SharedDeadline) -> tuple[Replica, int] | None:
        """Choose a replica, and count an execution there. Return None if all are to be avoided.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be expected to answer in time.
        """
        with self._lock:
            replica = choose_replica(self._replicas, self._random, avoid)
            if replica is None:
                return None
            remaining, expected = deadline.remaining, replica.workload.expected_s
            if remaining is not None and expected > remaining:
                reason = f"the execution would take {expected:.3g} s at least, with {remaining:.3g} s left"
                raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, reason)
            return replica, replica.workload.begin()

    def end(self, replica: Replica, begun: int, seconds: float | None) -> None:
        """Remove an execution that `begin` has counted."""
        with self._lock:
            replica.workload.end(begun, seconds)

    def close(self) -> None:
        """Free everything on all services."""
        for replica in self._replicas:
            replica.close()

    def __enter__(self) -> "ReplicatedModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SpreadExecution:
    """An execution that may be sent to several replicas: after a failure, or because an answer takes long.

    Attributes:
        future: of its outputs: the first ones that arrive.
    """

    def __init__(self, model: ReplicatedModel, inputs: Inputs, deadline: SharedDeadline) -> None:
        self.future: Future[Outputs] = Future()
        self.future.set_running_or_notify_cancel()
        self._model = model
        self._inputs = inputs
        self._deadline = deadline
        self._lock = threading.Lock()
        self._tried: list[Replica] = []
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
        failure: HalError | None = HalError(ErrorStatus.DEVICE_UNAVAILABLE, "no replica is left")
        while True:
            with self._lock:
                begun = self._model.begin(self._tried, self._deadline)
                if begun is None:
                    return failure
                replica, count = begun
                self._tried.append(replica)
                self._in_progress += 1
            start = time.monotonic()
            try:
                sent = replica.burst.submit(self._inputs, deadline=self._deadline.remaining)
            except HalError as error:
                self._finish_one(replica, count, None)
                if not _may_repeat(error):
                    raise
                failure = error
                continue
            sent.add_done_callback(self._callback(replica, count, start))
            return None

    def _callback(self, replica: Replica, count: int, start: float) -> "Callable[[Future[Outputs]], None]":
        def finish(sent: "Future[Outputs]") -> None:
            error = sent.exception()
            is_last = self._finish_one(replica, count, None if error else time.monotonic() - start)
            if self.future.done():
                return
            if error is None:
                self._settle(lambda: self.future.set_result(sent.result()))
            elif _may_repeat(error) and self._launch_quietly():
                return
            elif is_last:
                self._settle(lambda: self.future.set_exception(error))

        return finish

    def _finish_one(self, replica: Replica, count: int, seconds: float | None) -> bool:
        """Count the end of an attempt, and return whether it was the last one in progress."""
        self._model.end(replica, count, seconds)
        with self._lock:
            self._in_progress -= 1
            return self._in_progress == 0

    def _settle(self, settle: Callable[[], None]) -> None:
        """Set the result, unless another attempt has set it meanwhile."""
        with self._lock:
            if not self.future.done():
                settle()


def _may_repeat(error: BaseException) -> bool:
    """Return whether another replica may succeed."""
    return isinstance(error, HalError) and (is_session_lost(error) or error.status in _BUSY)


def _copied(inputs: Any) -> Any:
    """Return inputs whose arrays do not change."""
    if isinstance(inputs, dict):
        return {name: None if value is None else np.array(value) for name, value in inputs.items()}
    return [None if value is None else np.array(value) for value in inputs]
