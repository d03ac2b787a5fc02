"""A fleet, for clients that prepare a model on several of its services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Unpack

from nnhal.client.aio.concurrency import result_of
from nnhal.client.aio.device import Device, open_device
from nnhal.client.aio.preparation import load_model
from nnhal.client.core.arguments import ModelSource, check_connect
from nnhal.client.core.handles import ProcessBound
from nnhal.client.core.session import Transport
from nnhal.client.fallback.preparation import PrepareOptions
from nnhal.client.fleet.needs import session_needs
from nnhal.client.replicas.aio.replicated_burst import DeviceReplica, ReplicatedBurst
from nnhal.client.replicas.aio.replicated_model import ReplicatedModel, close_replicas
from nnhal.client.replicas.replica_set import Replica, ReplicaSet, check_count, fleet_options, needs_of
from nnhal.v1.session_pb2 import SessionNeeds


class Fleet(ProcessBound):
    """A fleet of services. It holds no connection itself.

    Args:
        target: as for `nnhal.aio.connect`: the address of any member, or the head of a cluster of Ray.
        device: name of the device, like the next ones as for `nnhal.aio.connect`.
        timeout: seconds to wait for a service.
        transport: transport of executions.
        client_name: name of this client.
        accelerator: name of an accelerator, backend or device that the services must have.
        security: options of `nnhal.aio.connect` for TLS and tokens.

    Raises:
        HalError: INVALID_ARGUMENT: the target is not an address.
        TypeError: an argument is unknown, or has a wrong type.
    """

    def __init__(
        self,
        target: str,
        *,
        device: str = "",
        timeout: float = 10.0,
        transport: Transport = "auto",
        client_name: str = "",
        accelerator: str = "",
        **security: Any,
    ) -> None:
        check_connect(target, device, timeout, transport, client_name)
        self._accelerator = accelerator
        options = fleet_options(security)
        self._open = partial(open_device, target, device, timeout, transport, client_name, options)

    async def prepare(
        self, model: ModelSource, *, replicas: int = 2, hedge: float | None = None, **options: Unpack[PrepareOptions]
    ) -> ReplicatedModel:
        """Prepare a model on several services, and wait until it is ready on all.

        Each replica is on a member of its own, as long as there are enough. If a member dies, its replica is prepared
        again on another one, and its executions are repeated.

        Args:
            model: a model, or the path or the bytes of a .tflite file.
            replicas: number of replicas.
            hedge: seconds after which an execution without an answer is sent to a second replica, too; None: never.
            options: further arguments of `Device.prepare`.

        Raises:
            HalError: INVALID_ARGUMENT: the number of replicas; otherwise as for `nnhal.aio.connect` and
                `Device.prepare`.
        """
        check_count(replicas)
        loaded = await load_model(model, options.pop("signature", None), options.pop("shapes", None))
        needs = session_needs(loaded, self._accelerator) or SessionNeeds()
        made: list[DeviceReplica] = []
        try:
            for number in range(replicas):
                device = await self._open(partial(needs_of, number, made, needs))
                async with _closing_on_error(device):
                    made.append(Replica(device, await result_of(device.prepare(loaded, **options))))
            replica_set = ReplicaSet(made)
            return ReplicatedModel(replica_set, hedge, await ReplicatedBurst(replica_set, hedge))
        except BaseException:
            await close_replicas(made)
            raise


@asynccontextmanager
async def _closing_on_error(device: Device) -> AsyncIterator[None]:
    """Close a device if the work within fails."""
    try:
        yield
    except BaseException:
        await device.close()
        raise
