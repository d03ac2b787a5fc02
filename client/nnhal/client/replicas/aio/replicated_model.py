"""A model with several replicas."""

from __future__ import annotations

from collections.abc import Iterable

from numpy.typing import ArrayLike

from nnhal.client.aio.concurrency import Started
from nnhal.client.core.arrays import CallInput, Inputs, Outputs, call_inputs
from nnhal.client.core.handles import AsyncCloseable
from nnhal.client.replicas.aio.replicated_burst import DeviceReplica, DeviceReplicas, ReplicatedBurst


class ReplicatedModel(AsyncCloseable):
    """Model that is prepared on several services. Close it, or use it as an asynchronous context manager."""

    def __init__(self, replicas: DeviceReplicas, hedge: float | None, burst: ReplicatedBurst) -> None:
        self._replicas = replicas
        self._hedge = hedge
        self._burst = burst

    @property
    def members(self) -> list[str]:
        """Ids of the members of the fleet that serve the replicas."""
        return self._replicas.members

    @property
    def outstanding(self) -> list[int]:
        """Number of executions in progress, for each replica."""
        return self._replicas.outstanding

    async def __call__(self, *values: CallInput, **named: ArrayLike | None) -> Outputs:
        """Run the model with one value per input, by position or by name, as `execute` does."""
        return await self.execute(call_inputs(values, named))

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

    def submit(self, inputs: Inputs, *, deadline: float | None = None) -> Started[Outputs]:
        """Start an execution on one of the replicas without waiting for it, see `ReplicatedBurst.submit`."""
        return self._burst.submit(inputs, deadline=deadline)

    def burst(self) -> ReplicatedBurst:
        """Return a burst of its own, which keeps inputs that stay the same. Use it in `async with`.

        Raises:
            HalError: the model has been closed, or a session has too many bursts.
        """
        return ReplicatedBurst(self._replicas, self._hedge)

    async def close(self) -> None:
        """Free everything on all services."""
        await self._burst.close()
        await close_replicas(self._replicas.replicas)


async def close_replicas(replicas: Iterable[DeviceReplica]) -> None:
    """Free what is prepared on all services, and end the sessions there."""
    for replica in replicas:
        await replica.prepared.close()
        await replica.device.close()
