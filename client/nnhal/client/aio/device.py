"""Devices for asyncio, and how to connect to them.

Hand-written: `prepare` is a coroutine, where the synchronous client returns a future.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Literal, NoReturn, Unpack, overload

import grpc

from nnhal.client.aio.buffer import Buffer
from nnhal.client.aio.concurrency import run_blocking
from nnhal.client.aio.fallback import FallbackDevice
from nnhal.client.aio.grpc_calls import PreparationCall
from nnhal.client.aio.partitioned_model import PartitionedModel
from nnhal.client.aio.preparation import load_model
from nnhal.client.aio.prepared_model import PreparedModel
from nnhal.client.aio.reconnect import ReconnectingSession
from nnhal.client.core.arguments import InputShapes, ModelSource, check_connect
from nnhal.client.core.arrays import Inputs, Outputs
from nnhal.client.core.cache import SharedDeadline
from nnhal.client.core.handles import AsyncCloseable, ProcessBound, description
from nnhal.client.core.reconnect import FindNeeds
from nnhal.client.core.session import Transport
from nnhal.client.fallback.preparation import PreparationArguments, PrepareOptions
from nnhal.client.fleet.needs import session_needs
from nnhal.client.fleet.targets import is_cluster, resolve_target
from nnhal.client.security.options import PemSource, SecurityOptions, TokenSource
from nnhal.types import ExecutionPreference, Priority

__all__ = ["Buffer", "Device", "Inputs", "Outputs", "PartitionedModel", "PreparedModel", "connect", "load"]


def connect(
    target: str | None = None,
    *,
    device: str = "",
    timeout: float = 10.0,
    transport: Transport = "auto",
    client_name: str = "",
    credentials: grpc.ChannelCredentials | None = None,
    tls: bool | None = None,
    ca: PemSource | None = None,
    cert: PemSource | None = None,
    key: PemSource | None = None,
    server_name: str = "",
    token: TokenSource | None = None,
    model: ModelSource | None = None,
    accelerator: str = "",
) -> "Connecting":
    """Return a device to connect: await it, or use it in `async with`.

    The arguments are those of `nnhal.connect`.

    Raises:
        DeadObjectError: on connecting: the service cannot be reached, does not respond in time, or does not start.
        HalError: INVALID_ARGUMENT: the target is not an address, or the options for TLS cannot be used; on connecting:
            there is no such device. DEVICE_UNAVAILABLE: on connecting: the service and the client do not agree on TLS.
        LinuxRequiredError: on connecting: there is no target, and this system is not Linux.
        TypeError: an argument has a wrong type.
    """
    check_connect(target, device, timeout, transport, client_name)
    options = SecurityOptions(
        credentials=credentials, tls=tls, ca=ca, cert=cert, key=key, server_name=server_name, token=token
    )
    if not is_cluster(target):
        resolve_target(target, options, timeout)  # an argument that cannot be used is an error at once

    async def open_() -> Device:
        needs = session_needs(None if model is None else await load_model(model), accelerator)
        return await open_device(target, device, timeout, transport, client_name, options, lambda: needs)

    return Connecting(open_)


async def open_device(
    target: str | None,
    device: str,
    timeout: float,
    transport: Transport,
    client_name: str,
    options: SecurityOptions,
    needs: FindNeeds,
) -> "Device":
    """Open a session for arguments of `connect` that have been checked. Errors are those of `connect`."""
    found = await run_blocking(resolve_target, target, options, timeout)
    session = ReconnectingSession(found, timeout, transport, client_name, needs)
    await session.open(device)
    return Device(session, device)


class Connecting(ProcessBound):
    """Device to connect. Await it, or use it as an asynchronous context manager."""

    def __init__(self, open_: "Callable[[], Coroutine[object, None, Device]]") -> None:
        self._open = open_
        self._device: Device | None = None

    def __await__(self) -> Generator[object, None, "Device"]:
        return self._open().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        hint = "; await it to get the device, or use it in `async with`" if hasattr(Device, name) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        return description(self, "of a device: await it, or use it in `async with`")

    async def __aenter__(self) -> "Device":
        self._device = await self._open()
        return self._device

    async def __aexit__(self, *_: object) -> None:
        assert self._device is not None
        await self._device.close()


async def load(
    model: ModelSource,
    target: str | None = None,
    *,
    signature: str | None = None,
    shapes: InputShapes | None = None,
    cache: bool = False,
    **options: Any,
) -> PreparedModel | PartitionedModel:
    """Load a model and return it ready to be called: `outputs = await model(image)`.

    Arguments and errors are those of `nnhal.load`.
    """
    loaded = await load_model(model, signature, shapes)  # before a service starts for a file that cannot be used
    device = await connect(target, **options)
    try:
        prepared = await device.prepare(loaded, fallback=True, cache=cache)
    except BaseException:
        await device.close()
        raise
    prepared.owner = device
    return prepared


class Device(FallbackDevice, AsyncCloseable):
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
        signature: str | None = None,
        shapes: InputShapes | None = None,
    ) -> PreparedModel | PartitionedModel:
        """Prepare a model. Arguments and errors are those of `nnhal.Device.prepare` and of its result.

        If the task is cancelled, the service abandons the work.
        """
        model = await load_model(model, signature, shapes)
        options = PreparationArguments.of(preference, priority, cache, token)
        prepare = self._prepare_with_fallback if fallback else self._prepare_model
        return await prepare(model, options, PreparationCall(), SharedDeadline(deadline))
