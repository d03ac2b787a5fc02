"""Preparing from the cache first, and again when the service was started anew, for asyncio: as `nnhal.warm`."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from nnhal import pools, wire
from nnhal.aio_connection import Connection
from nnhal.caching import Recipe, Until, compiled, must_compile
from nnhal.connection import closed_here
from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError, HalError
from nnhal.local import Transport
from nnhal.prepared import never_notified
from nnhal.types import Model
from nnhal.v1 import device_pb2, types_pb2
from nnhal.warm import ATTEMPT_S, PAUSE_S, LifelineBase


@asynccontextmanager
async def model_message(connection: Connection, model: Model) -> AsyncGenerator[types_pb2.Model, None]:
    """As `nnhal.warm.model_message`."""
    model = pools.with_small_values(model)
    taken = memoryview(model.operand_values).nbytes
    async with connection.spilled(model.pools, lasting=True, taken=taken) as send:
        yield wire.model_message(model, send)


async def notified(
    connection: Connection,
    method: "grpc.aio.UnaryStreamMultiCallable[Any, device_pb2.PrepareModelEvent]",
    request: object,
) -> device_pb2.Notify:
    """Makes a call that prepares; gives what its callback was told.

    Raises:
        HalError: nothing; the call failed before.
    """
    notify: device_pb2.Notify | None = None
    try:
        async for event in connection.stream(method, request):
            if event.WhichOneof("event") == "notify":
                notify = event.notify
    except HalError:
        if notify is None:  # an error of the launch is told by notify first
            raise
    if notify is None:
        raise never_notified()
    return notify


async def prepare(connection: Connection, recipe: Recipe, until: Until, *, again: bool) -> device_pb2.Notify:
    """As `nnhal.warm.prepare`."""
    token = recipe.token or recipe.token_on(await device_version(connection, recipe.device))
    request = recipe.from_cache(connection.session, token, until)
    loaded = await notified(connection, connection.device.PrepareModelFromCache, request)
    if not must_compile(loaded):
        return loaded
    if again:
        await asyncio.to_thread(recipe.check_unchanged)
    async with model_message(connection, recipe.model) as message:
        full = recipe.compiling(connection.session, token, message, until)
        return compiled(await notified(connection, connection.device.PrepareModel, full), loaded)


async def device_version(connection: Connection, device: str) -> str:
    """Version of driver and backends; asked for once a connection."""
    if connection.version is None:
        request = device_pb2.DeviceRequest(device=device)
        connection.version = (await connection.ask(connection.device.GetVersionString, request)).version
    return connection.version


class Lifeline(LifelineBase[Connection]):
    """The connection of a device, and the one after it: as `nnhal.warm.Lifeline`. `open` it; close it when done."""

    def __init__(self, target: str | None, timeout: float, transport: Transport) -> None:
        super().__init__(target, timeout, transport)
        self._renewing = asyncio.Lock()

    async def open(self) -> None:
        """Makes the first connection.

        Raises:
            DeadObjectError: the service does not answer, or does not start.
        """
        try:
            self.connection = await self._open(self._timeout)
        except BaseException:
            await self._close_service()
            raise

    async def renewed(self, lost: Connection, until: Until) -> Connection:
        """As `nnhal.warm.Lifeline.renewed`."""
        end = Until(until.at_most(self._timeout))
        try:
            async with asyncio.timeout(end.left):
                await self._renewing.acquire()
        except TimeoutError:
            raise self._unanswered() from None
        try:
            while self.connection is lost and not await self._try(lost, end):
                await asyncio.sleep(PAUSE_S)
            return self.connection
        finally:
            self._renewing.release()

    async def _try(self, lost: Connection, end: Until) -> bool:
        """As in `nnhal.warm.Lifeline`."""
        if self._closed:
            raise closed_here()
        seconds = end.at_most(ATTEMPT_S)
        try:
            if self._may_answer and await lost.alive(seconds):
                return True
            self.connection = await self._open(seconds)
        except DeadObjectError:
            if end.left == 0 and not self._closed:
                raise
            return False
        await lost.close()
        return True

    async def _open(self, timeout: float) -> Connection:
        target = self._target
        if target is None:
            if self._service is None or not self._service.running:
                await self._close_service()
                self._service = await _start_service()
                timeout = self._timeout
            target = self._service.target
        connection = Connection(target, self._transport)
        await connection.open(timeout)
        return connection

    async def close(self) -> None:
        """Ends the session, and the service if it is the device's own. A second call does nothing."""
        self._closed = True
        try:
            await self.connection.close()
            async with self._renewing:  # it may have opened another one meanwhile
                await self.connection.close()
        finally:
            await self._close_service()

    async def _close_service(self) -> None:
        if self._service is not None:
            await asyncio.to_thread(self._service.close)


async def _start_service() -> EmbeddedService:
    """Starts a service without stopping the loop. A caller that is cancelled leaves no service behind."""
    starting = asyncio.ensure_future(asyncio.to_thread(EmbeddedService))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(started: "asyncio.Future[EmbeddedService]") -> None:
    if not started.cancelled() and started.exception() is None:
        threading.Thread(target=started.result().close, name="nnhal-unwanted-service").start()
