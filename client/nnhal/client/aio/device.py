"""Devices for asyncio, and how to connect to them.

Hand-written: `prepare` is a coroutine, where the synchronous client returns a future.
"""

from collections.abc import Generator
from typing import Literal, Unpack, overload

from nnhal.client.aio.buffer import Buffer
from nnhal.client.aio.fallback import FallbackDevice
from nnhal.client.aio.partitioned_model import PartitionedModel
from nnhal.client.aio.preparation import load_model
from nnhal.client.aio.preparation_call import PreparationCall
from nnhal.client.aio.prepared_model import PreparedModel
from nnhal.client.aio.reconnect import ReconnectingSession
from nnhal.client.core.arguments import ModelSource, check_connect
from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.cache import SharedDeadline
from nnhal.client.core.session import Transport
from nnhal.client.fallback.preparation import PreparationArguments, PrepareOptions
from nnhal.types import ExecutionPreference, Priority

__all__ = ["Buffer", "Device", "Inputs", "Outputs", "PartitionedModel", "PreparedModel", "connect"]


def connect(
    target: str | None = None,
    *,
    device: str = "",
    timeout: float = 10.0,
    transport: Transport = "auto",
    client_name: str = "",
) -> "Connecting":
    """Return a device to connect: await it, or use it in `async with`.

    Args:
        target: "HOST:PORT" or "unix:PATH". None starts a service in a child process, which stops with the device.
        device: name of the device; by default the server's first.
        timeout: seconds to wait for the service to respond. If nothing listens at the address, `connect` fails at once.
        transport: "auto" uses shared memory if the service is on this machine; "grpc" never does.
        client_name: name of this client in the log of the service; by default the name of the program.

    Raises:
        DeadObjectError: on connecting: the service cannot be reached, does not respond in time, or does not start.
        HalError: INVALID_ARGUMENT: the target is not an address; on connecting: there is no such device.
        TypeError: an argument has a wrong type.
    """
    check_connect(target, device, timeout, transport, client_name)
    return Connecting(target, device, timeout, transport, client_name)


class Connecting:
    """Device to connect. Await it, or use it as an asynchronous context manager."""

    def __init__(self, target: str | None, name: str, timeout: float, transport: Transport, client_name: str) -> None:
        self._transport = transport
        self._client_name = client_name
        self._target = target
        self._name = name
        self._timeout = timeout
        self._device: Device | None = None

    def __await__(self) -> Generator[object, None, "Device"]:
        return self._connect().__await__()

    async def __aenter__(self) -> "Device":
        self._device = await self._connect()
        return self._device

    async def __aexit__(self, *_: object) -> None:
        assert self._device is not None
        await self._device.close()

    async def _connect(self) -> "Device":
        session = ReconnectingSession(self._target, self._timeout, self._transport, self._client_name)
        await session.open(self._name)
        return Device(session, self._name)


class Device(FallbackDevice):
    """Device of a service, in a session of its own. Close it, or use it as an asynchronous context manager."""

    @overload
    async def prepare(
        self, model: ModelSource, *, fallback: Literal[False] = False, **options: Unpack[PrepareOptions]
    ) -> PreparedModel: ...

    @overload
    async def prepare(
        self, model: ModelSource, *, fallback: bool, **options: Unpack[PrepareOptions]
    ) -> PreparedModel | PartitionedModel: ...

    async def prepare(
        self,
        model: ModelSource,
        *,
        fallback: bool = False,
        cache: bool = False,
        token: bytes | None = None,
        preference: int | str = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int | str = Priority.MEDIUM,
        deadline: float | None = None,
    ) -> PreparedModel | PartitionedModel:
        """Prepare a model. Arguments and errors are those of `nnhal.Device.prepare` and of its result.

        If the task is cancelled, the service abandons the work.
        """
        model = await load_model(model)
        options = PreparationArguments.of(preference, priority, cache, token)
        prepare = self._prepare_with_fallback if fallback else self._prepare_model
        return await prepare(model, options, PreparationCall(), SharedDeadline(deadline))

    async def __aenter__(self) -> "Device":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
