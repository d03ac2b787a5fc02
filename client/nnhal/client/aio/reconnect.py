"""Sessions that reconnect: when the service was restarted, a device goes on with another connection.

The first caller that finds its session lost opens the next connection, while the others wait for it. Each model that
uses the cache is then prepared again once.
"""

from nnhal.client.aio.concurrency import Lock, acquire_within, create_blocking, run_blocking, sleep
from nnhal.client.aio.connection import Connection
from nnhal.client.aio.preparation import device_version
from nnhal.client.core.cache import SharedDeadline
from nnhal.client.core.open_errors import redirected
from nnhal.client.core.reconnect import ATTEMPT_TIMEOUT_S, REDIRECT_TIMEOUT_S, RETRY_DELAY_S, ReconnectingSessionBase
from nnhal.client.core.session import Transport, closed_error
from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError, HalError


class ReconnectingSession(ReconnectingSessionBase[Connection]):
    """Connection of a device, replaced by another when its session is lost. `open` it first; close it when done."""

    def __init__(self, target: str | None, timeout: float, transport: Transport, client_name: str) -> None:
        super().__init__(target, timeout, transport, client_name)
        self._reconnecting = Lock()

    async def open(self, device: str = "") -> None:
        """Open the first connection.

        Args:
            device: name of a device that the service must have, or "".

        Raises:
            DeadObjectError: the service does not respond, or does not start.
            HalError: INVALID_ARGUMENT: there is no such device.
        """
        try:
            self.connection = await self._connect(self._timeout)
        except BaseException:
            await self._stop_service()
            raise
        if device:
            try:
                await device_version(self.connection, device)
            except BaseException:
                await self.close()
                raise

    async def reconnect(self, lost: Connection, deadline: SharedDeadline) -> Connection:
        """Return the connection to use after an error of `lost`, which is the same one if its session goes on.

        Raises:
            DeadObjectError: the service does not come back in time.
            SessionLostError: the device has been closed.
        """
        end = SharedDeadline(deadline.at_most(self._timeout))
        if not await acquire_within(self._reconnecting, end.at_most(self._timeout)):
            raise self._timeout_error()
        try:
            while self.connection is lost and not await self._try_reconnect(lost, end):
                await sleep(RETRY_DELAY_S)
            return self.connection
        finally:
            self._reconnecting.release()

    async def _try_reconnect(self, lost: Connection, end: SharedDeadline) -> bool:
        """Make one attempt, and return whether it succeeded.

        Raises:
            HalError: the deadline has passed, or the device has been closed.
        """
        if self._closed:
            raise closed_error()
        seconds = end.at_most(ATTEMPT_TIMEOUT_S)
        try:
            if self._may_answer and await lost.is_alive(seconds):
                return True
            self.connection = await self._connect(seconds)
        except DeadObjectError:
            if end.remaining == 0 and not self._closed:
                raise
            return False
        await lost.abandon()
        return True

    async def _connect(self, timeout: float) -> Connection:
        target = self._target
        if target is None:
            if self._service is None or not self._service.running:
                await self._stop_service()
                self._service = await create_blocking(EmbeddedService, lambda service: service.close())
                timeout = self._timeout
            target = self._service.target
        connection = Connection(target, self._transport, self._client_name)
        redirect = await connection.open(timeout, accept_redirect=True)
        return await self._follow(target, redirect, timeout) if redirect else connection

    async def _follow(self, target: str, redirect: str, timeout: float) -> Connection:
        """Open a session at the address of a redirect, or else where the client was redirected from."""
        try:
            address = redirected(target, redirect)
            connection = Connection(address, self._transport, self._client_name, redirected=True)
            await connection.open(min(timeout, REDIRECT_TIMEOUT_S))
        except HalError:  # an invalid address, or no session there
            connection = Connection(target, self._transport, self._client_name)
            await connection.open(timeout)
        return connection

    async def close(self) -> None:
        """End the session, and stop the service if the device started it. A second call does nothing."""
        self._closed = True
        try:
            await self.connection.close()
            async with self._reconnecting:  # another connection may have been opened meanwhile
                await self.connection.close()
        finally:
            await self._stop_service()

    async def _stop_service(self) -> None:
        if self._service is not None:
            await run_blocking(self._service.close)
