"""Burst on several replicas: executions spread over them, and those that fail with a service are repeated."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.handles import Closeable
from nnhal.client.replicas.replica_set import Replica, ReplicaSet
from nnhal.client.replicas.spreading import ReplicatedBurstBase
from nnhal.client.sync.device import Device, PreparedModel
from nnhal.types import AnyArray

DeviceReplica: TypeAlias = Replica[Device, PreparedModel]
DeviceReplicas: TypeAlias = ReplicaSet[Device, PreparedModel]


class ReplicatedBurst(ReplicatedBurstBase[Device, PreparedModel], Closeable):
    """Burst with a stream to each replica. Thread safe. Close it, or use it as a context manager.

    Executions run in any order, because they run on several services.
    """

    def __init__(self, replicas: DeviceReplicas, hedge: float | None) -> None:
        super().__init__(replicas, hedge)
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
        future: Future[Outputs] = Future()
        future.set_running_or_notify_cancel()
        self._start(self._kept.frozen(inputs), deadline, future, _call_later)
        return future

    def release(self, array: AnyArray) -> None:
        """Release an array of `keep`, when no execution that uses it is in progress."""
        for replica, copy in self._kept.remove(array).items():
            self._bursts[replica].release(copy)

    def close(self) -> None:
        """Wait for the executions in progress, then close the burst on all replicas."""
        for burst in self._bursts.values():
            burst.close()


def _call_later(seconds: float, function: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer
