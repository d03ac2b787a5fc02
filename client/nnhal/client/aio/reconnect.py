"""Sessions that reconnect: when a service is lost, a device goes on with another connection.

The first caller that finds its session lost opens the next connection, while the others wait for it. Each model is then
prepared again once. Work that may be done twice is repeated by `ReconnectingSession.repeat`: preparations, queries, and
executions that only compute.
"""

from collections.abc import Sequence
from typing import TypeVar

from nnhal.client.aio.concurrency import Lock, Work, acquire_within, create_blocking, run_blocking, sleep
from nnhal.client.aio.connection import Connection
from nnhal.client.aio.preparation import device_version
from nnhal.client.core.cache import SharedDeadline, is_session_lost
from nnhal.client.core.open_errors import NothingListensError, redirected
from nnhal.client.core.reconnect import (
    ATTEMPT_TIMEOUT_S,
    MAX_RETRIES,
    REDIRECT_TIMEOUT_S,
    REPLACEMENT_TIMEOUT_S,
    RETRY_DELAY_S,
    AddressBook,
    FindNeeds,
    Hop,
)
from nnhal.client.core.service_user import ServiceUser
from nnhal.client.core.session import Transport, closed_error, timeout_error
from nnhal.client.fleet.targets import ResolvedTarget
from nnhal.client.forks import watch_forks
from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import ErrorKind, ErrorStatus

T = TypeVar("T")


class ReconnectingSession:
    """Connection of a device, replaced by another when its session is lost. `open` it first; close it when done.

    Args:
        target: addresses of the service; it is started, and started again after it has died, if there is none.
        timeout: seconds to wait for the service.
        transport: transport of executions.
        client_name: name of the client in the log of the service; "" for the name of the program.
        needs: returns what the client is about to use, for services of a fleet.
    """

    connection: Connection

    def __init__(
        self,
        target: ResolvedTarget,
        timeout: float,
        transport: Transport = "auto",
        client_name: str = "",
        needs: FindNeeds = lambda: None,
    ) -> None:
        self._target = target.address
        self._find_members = target.find_members
        self._addresses = AddressBook(target.address or "", target.members)
        self._needs = needs
        self._security = target.security
        self._timeout = timeout
        self._transport = transport
        self._client_name = client_name
        self._user = ServiceUser()
        self._service: EmbeddedService | None = None
        self.closed = self._is_parents = False
        self._left: Connection | None = None
        self._reconnecting = Lock()
        watch_forks(self)

    def leave_to_parent(self) -> None:
        """Refuse all further calls, because this process is a fork of the one that has connected."""
        self.closed = self._is_parents = True

    @property
    def service_name(self) -> str:
        """Address of the service, for messages."""
        return self._target or "the embedded service"

    @property
    def is_embedded(self) -> bool:
        """True if the service is a child process, which runs on this machine with the settings of this program."""
        return self._target is None

    async def open(self, device: str = "") -> None:
        """Open the first connection.

        Args:
            device: name of a device that the service must have, or "".

        Raises:
            DeadObjectError: the service does not respond, or does not start.
            HalError: INVALID_ARGUMENT: there is no such device.
        """
        try:
            self.connection = await self._connect_first()
        except BaseException:
            await self._stop_service()
            raise
        if device:
            try:
                await self.repeat(lambda connection: device_version(connection, device), SharedDeadline(self._timeout))
            except BaseException:
                await self.close()
                raise

    async def _connect_first(self) -> Connection:
        """Open the first connection. A service that ends meanwhile may be replaced soon, so the attempt is repeated.

        Raises:
            HalError: nothing listens at the address, or the service does not respond or refuses.
        """
        end = SharedDeadline(min(self._timeout, REPLACEMENT_TIMEOUT_S))
        was_there = False
        while True:
            try:
                return await self._connect(self._timeout)
            except DeadObjectError as error:
                was_there = was_there or not isinstance(error, NothingListensError)
                if end.remaining == 0 or not was_there:
                    raise
            await sleep(RETRY_DELAY_S)

    async def repeat(
        self,
        work: Work[[Connection], T],
        deadline: SharedDeadline,
        connection: Connection | None = None,
        failure: HalError | None = None,
    ) -> T:
        """Do some work on the current connection, and again on the next one if its service or session is lost.

        Args:
            work: the work. To do it twice must be harmless.
            deadline: end of the time for all attempts.
            connection: connection of the first attempt, if it has failed already.
            failure: its error.

        Raises:
            HalError: the work failed; the service is lost too many times, or does not come back in time.
        """
        used = connection or self.connection
        try:
            for _ in range(MAX_RETRIES):
                if failure is None:
                    try:
                        return await work(used)
                    except HalError as error:
                        failure = error
                if not self.is_lost(failure, used):
                    raise failure
                used, failure = await self.reconnect(used, deadline, leave=failure.kind == ErrorKind.STOPPING), None
            return await work(used)
        finally:
            failure = None  # it would be in a cycle with this frame, and keep what failed in memory

    def is_lost(self, error: HalError, connection: Connection) -> bool:
        """Return whether an error of a connection may mean that its service or session is lost."""
        # calls in progress fail when another thread or task closes a lost connection
        return not self.closed and (is_session_lost(error) or self.connection is not connection)

    async def reconnect(self, lost: Connection, deadline: SharedDeadline, *, leave: bool = False) -> Connection:
        """Return the connection to use after an error of `lost`, which is the same one if its session goes on.

        With `leave`, the session is given up, even if it goes on.

        Raises:
            DeadObjectError: the service does not come back in time.
            SessionLostError: the device has been closed.
        """
        end = SharedDeadline(deadline.at_most(self._timeout))
        if not await acquire_within(self._reconnecting, end.at_most(self._timeout)):
            raise timeout_error(self.service_name, self._timeout)
        try:
            while self.connection is lost and not await self._try_reconnect(lost, end, leave):
                await sleep(RETRY_DELAY_S)
            return self.connection
        finally:
            self._reconnecting.release()

    async def _try_reconnect(self, lost: Connection, end: SharedDeadline, leave: bool) -> bool:
        """Make one attempt, and return whether it succeeded.

        Raises:
            HalError: the deadline has passed, or the device has been closed.
        """
        if self.closed:
            raise closed_error()
        seconds = end.at_most(ATTEMPT_TIMEOUT_S)
        self._addresses.note_members(lost.target, lost.members)
        try:
            may_answer = not leave and (self._service is None or self._service.running)
            if may_answer and await self._is_alive(lost, seconds):
                return True
            self.connection = await self._connect(seconds)
        except DeadObjectError:
            if end.remaining == 0 and not self.closed:
                raise
            return False
        await self._drop(lost, leave=leave)
        return True

    async def _is_alive(self, lost: Connection, timeout: float) -> bool:
        """Return whether a session goes on. If its service is gone for now, another one that is known is better.

        Raises:
            DeadObjectError: the service cannot be reached, and there is no other one.
        """
        try:
            return await lost.is_alive(timeout)
        except DeadObjectError:
            if not self._addresses.has_alternatives:
                raise
            self._addresses.note_failure(lost.target)
            return False

    async def _drop(self, lost: Connection, *, leave: bool) -> None:
        """Abandon a connection. A service that is left finishes what it runs, so the channel stays for a while."""
        lost.abandon()
        left, self._left = self._left, lost if leave else None
        for connection in (left, None if leave else lost):
            if connection is not None:
                await connection.close_channel()

    async def _connect(self, timeout: float) -> Connection:
        if self._target is None:
            if self._service is None or not self._service.running:
                await self._stop_service()
                self._service = await create_blocking(EmbeddedService, lambda service: service.close())
                timeout = self._timeout
            return await self._connect_to(self._service.target, timeout)
        candidates = self._addresses.candidates()
        try:
            return await self._connect_to_any(candidates, timeout)
        except HalError as error:
            if error.status != ErrorStatus.DEVICE_UNAVAILABLE or not (new := await self._find_new(candidates)):
                raise
        return await self._connect_to_any(new, timeout)

    async def _find_new(self, known: Sequence[str]) -> Sequence[str]:
        """Ask the cluster again, and return the addresses that are new."""
        if self._find_members is None or self.closed:
            return ()
        try:
            found = await run_blocking(self._find_members)
        except HalError:  # the head of the cluster may be gone, too
            return ()
        new = [address for address in found if address not in known]
        self._addresses.add(new)
        return new

    async def _connect_to_any(self, candidates: Sequence[str], timeout: float) -> Connection:
        """Open a session at one of several addresses.

        Raises:
            HalError: the error at the last one. INVALID_ARGUMENT and others: of the first one that refuses.
        """
        if len(candidates) > 1:
            timeout = min(timeout, ATTEMPT_TIMEOUT_S)
        for address in candidates:
            try:
                connection = await self._connect_to(address, timeout)
            except HalError as error:
                self._addresses.note_failure(address)
                is_last = self.closed or address == candidates[-1]
                if is_last or error.status != ErrorStatus.DEVICE_UNAVAILABLE:
                    raise
            else:
                self._addresses.note_session(connection.target, connection.members)
                return connection
        raise closed_error()

    async def _connect_to(self, target: str, timeout: float, hop: Hop = Hop.FIRST, placement: str = "") -> Connection:
        """Open a session at an address, or where the service there sends this client.

        Raises:
            HalError: there is no session, see `Connection.open`. DeadObjectError: another attempt may succeed.
        """
        connection = self._connection(target, redirected=hop is not Hop.FIRST)
        lost = self.connection.session if self._addresses.has_served else b""
        redirect = await connection.open(
            timeout,
            accept_redirect=hop is not Hop.LAST,
            placed=hop is Hop.PLACED,
            replaces=lost,
            placement=placement,
        )
        if redirect is None:
            return connection
        try:
            address = redirected(target, redirect.address)
            limit = min(timeout, REDIRECT_TIMEOUT_S)
            return await self._connect_to(address, limit, hop.after(redirect), redirect.reason or placement)
        except HalError as error:  # an invalid address, or no session there
            connection = self._connection(target, redirected=hop is not Hop.FIRST)
            try:
                await connection.open(timeout, replaces=lost)
            except HalError as refusal:
                if refusal.limit == "workers":  # the worker has ended meanwhile; the next redirect leads to another
                    raise DeadObjectError(error.status, error.reason) from refusal
                raise
            return connection

    def _connection(self, target: str, *, redirected: bool = False) -> Connection:
        name, user, security = self._client_name, self._user, self._security
        return Connection(target, self._transport, name, user, security, redirected=redirected, needs=self._needs())

    async def close(self) -> None:
        """End the session, and stop the service if the device started it. A second call does nothing."""
        if self._is_parents:
            return
        self.closed = True
        try:
            await self.connection.close()
            async with self._reconnecting:  # another connection may have been opened meanwhile
                await self.connection.close()
                if self._left is not None:
                    await self._left.close_channel()
        finally:
            await self._stop_service()

    async def _stop_service(self) -> None:
        if self._service is not None:
            await run_blocking(self._service.close)
