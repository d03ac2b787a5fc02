"""Burst on several replicas, for asyncio.

Hand-written: attempts are tasks, where the synchronous client has callbacks of futures.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias

from nnhal.client.aio.burst import Burst
from nnhal.client.aio.device import Device, PreparedModel
from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.replicas.kept_inputs import KeptInputs
from nnhal.client.replicas.replica_set import Replica, ReplicaSet, may_repeat, no_replica_error
from nnhal.errors import HalError
from nnhal.types import AnyArray

DeviceReplica: TypeAlias = Replica[Device, PreparedModel]
DeviceReplicas: TypeAlias = ReplicaSet[Device, PreparedModel]


class ReplicatedBurst:
    """Burst with a stream to each replica. Open it with `async with` or await it, and use it from its event loop.

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

    async def execute(self, inputs: Inputs, *, deadline: float | None = None) -> Outputs:
        """Run the model on one of the replicas. Arguments and errors are those of the synchronous client."""
        end = NO_DEADLINE if deadline is None else SharedDeadline(deadline)

        def send(replica: DeviceReplica) -> "asyncio.Task[Outputs]":
            return self._bursts[replica].submit(self._kept.of(replica, inputs), deadline=end.remaining)

        return await _SpreadExecution(self._replicas, send, end).run(self._hedge)

    def submit(self, inputs: Inputs, *, deadline: float | None = None) -> "asyncio.Task[Outputs]":
        """Start an execution on one of the replicas. Inputs must not change until it is done."""
        return asyncio.create_task(self.execute(inputs, deadline=deadline))

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. Its bytes are sent to each replica only once, with their first use."""
        return self._kept.add({replica: burst.keep(array) for replica, burst in self._bursts.items()})

    async def release(self, array: AnyArray) -> None:
        """Release an array of `keep`, when no execution that uses it is in progress."""
        for replica, copy in self._kept.remove(array).items():
            await self._bursts[replica].release(copy)

    async def close(self) -> None:
        """Wait for the executions in progress, then close the burst on all replicas."""
        for burst in self._bursts.values():
            await burst.close()

    def __await__(self) -> Generator[object, None, "ReplicatedBurst"]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> "ReplicatedBurst":
        try:
            for replica in self._replicas.replicas:
                self._bursts[replica] = await replica.prepared.burst()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _SpreadExecution:
    """An execution that may be sent to several replicas: after a failure, or because an answer takes long."""

    def __init__(
        self,
        replicas: DeviceReplicas,
        send: Callable[[DeviceReplica], "asyncio.Task[Outputs]"],
        deadline: SharedDeadline,
    ) -> None:
        self._replicas = replicas
        self._send = send
        self._deadline = deadline
        self._tried: list[DeviceReplica] = []
        self._running: set[asyncio.Task[Outputs]] = set()

    async def run(self, hedge: float | None) -> Outputs:
        """Return the first outputs that arrive.

        Args:
            hedge: seconds after which it is sent to a second replica; None: never.

        Raises:
            HalError: it cannot be expected in time, or all attempts have failed.
        """
        if not self._launch():
            raise no_replica_error()
        try:
            while True:
                done, self._running = await asyncio.wait(
                    self._running, timeout=hedge, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    hedge = None
                    self._launch_quietly()
                elif (outputs := self._first_outputs(done)) is not None:
                    return outputs
        finally:
            for task in self._running:
                task.cancel()

    def _first_outputs(self, done: "set[asyncio.Task[Outputs]]") -> Outputs | None:
        """Return the outputs of attempts that have ended; None if others may still succeed.

        Raises:
            HalError: all attempts have failed.
        """
        failures = [error for task in done if (error := task.exception()) is not None]
        if len(failures) < len(done):
            return next(task.result() for task in done if task.exception() is None)
        for error in failures:
            is_repeated = may_repeat(error) and self._launch_quietly()
            if not is_repeated and not self._running:
                raise error
        return None

    def _launch_quietly(self) -> bool:
        """Send it to another replica, and return whether there was one that can be expected to answer in time."""
        try:
            return self._launch()
        except HalError:
            return False

    def _launch(self) -> bool:
        """Send it to a replica that it was not sent to. Return False if there is none.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be expected in time.
        """
        begun = self._replicas.begin(self._tried, self._deadline)
        if begun is None:
            return False
        replica, count = begun
        self._tried.append(replica)
        task = self._send(replica)
        task.add_done_callback(partial(self._finish, replica, count, time.monotonic()))
        self._running.add(task)
        return True

    def _finish(self, replica: DeviceReplica, count: int, start: float, task: "asyncio.Task[Outputs]") -> None:
        """Count the end of an attempt, also of one that was cancelled."""
        has_failed = task.cancelled() or task.exception() is not None
        self._replicas.end(replica, count, None if has_failed else time.monotonic() - start)
