"""Burst on several replicas, for asyncio.

Hand-written: executions are tasks, where the synchronous client has futures.
"""

import asyncio
from typing import TypeAlias

from nnhal.client.aio.device import Device, PreparedModel
from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.handles import AsyncOpenable
from nnhal.client.replicas.replica_set import Replica, ReplicaSet
from nnhal.client.replicas.spreading import ReplicatedBurstBase
from nnhal.types import AnyArray

DeviceReplica: TypeAlias = Replica[Device, PreparedModel]
DeviceReplicas: TypeAlias = ReplicaSet[Device, PreparedModel]


class ReplicatedBurst(ReplicatedBurstBase[Device, PreparedModel], AsyncOpenable):
    """Burst with a stream to each replica. Open it with `async with` or await it, and use it from its event loop.

    Executions run in any order, because they run on several services.
    """

    async def open(self) -> None:
        """Open the burst on all replicas."""
        try:
            for replica in self._replicas.replicas:
                self._bursts[replica] = await replica.prepared.burst()
        except BaseException:
            await self.close()
            raise

    async def execute(self, inputs: Inputs, *, deadline: float | None = None) -> Outputs:
        """Run the model on one of the replicas. Arguments and errors are those of the synchronous client."""
        loop = asyncio.get_running_loop()
        spread = self._start(inputs, deadline, loop.create_future(), loop.call_later)
        try:
            outputs: Outputs = await spread.future
            return outputs
        finally:
            for attempt in spread.attempts:
                attempt.cancel()

    def submit(self, inputs: Inputs, *, deadline: float | None = None) -> "asyncio.Task[Outputs]":
        """Start an execution on one of the replicas. Inputs must not change until it is done."""
        return asyncio.create_task(self.execute(inputs, deadline=deadline))

    async def release(self, array: AnyArray) -> None:
        """Release an array of `keep`, when no execution that uses it is in progress."""
        for replica, copy in self._kept.remove(array).items():
            await self._bursts[replica].release(copy)

    async def close(self) -> None:
        """Wait for the executions in progress, then close the burst on all replicas."""
        for burst in self._bursts.values():
            await burst.close()
