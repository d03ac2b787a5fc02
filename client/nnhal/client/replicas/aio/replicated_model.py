"""A model with several replicas, for asyncio."""

import asyncio
from collections.abc import Iterable

from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.replicas.aio.replicated_burst import AioReplica, AioReplicas, ReplicatedBurst


class ReplicatedModel:
    """Model that is prepared on several services. Close it, or use it as an asynchronous context manager.

    Args:
        replicas: the replicas.
        hedge: seconds after which an execution without an answer is sent to another replica, too; None: never.
    """

    def __init__(self, replicas: AioReplicas, hedge: float | None = None) -> None:
        self._replicas = replicas
        self._hedge = hedge
        self._burst = self.burst()

    async def _open(self) -> "ReplicatedModel":
        await self._burst
        return self

    @property
    def members(self) -> list[str]:
        """Ids of the members of the fleet that serve the replicas."""
        return self._replicas.members

    @property
    def outstanding(self) -> list[int]:
        """Number of executions in progress, for each replica."""
        return self._replicas.outstanding

    async def execute(self, inputs: Inputs, *, deadline: float | None = None) -> Outputs:
        """Run the model on one of the replicas.

        Args:
            inputs: as for `PreparedModel.execute`, without buffers.
            deadline: seconds from now.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT, without asking a service: no replica can be expected to answer in time.
                Otherwise as for `PreparedModel.execute`.
        """
        return await self._burst.execute(inputs, deadline=deadline)

    def submit(self, inputs: Inputs, *, deadline: float | None = None) -> "asyncio.Task[Outputs]":
        """Start an execution on one of the replicas. Inputs must not change until it is done."""
        return self._burst.submit(inputs, deadline=deadline)

    def burst(self) -> ReplicatedBurst:
        """Return a burst of its own, which keeps inputs that stay the same. Await it, or use it in `async with`."""
        return ReplicatedBurst(self._replicas, self._hedge)

    async def close(self) -> None:
        """Free everything on all services."""
        await self._burst.close()
        await close_replicas(self._replicas.replicas)

    async def __aenter__(self) -> "ReplicatedModel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def close_replicas(replicas: Iterable[AioReplica]) -> None:
    """Free what is prepared on all services, and end the sessions there."""
    for replica in replicas:
        await replica.prepared.close()
        await replica.device.close()
