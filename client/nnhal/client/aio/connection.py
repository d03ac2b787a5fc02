"""Connection of the asyncio client: a channel, a session and the stubs. It belongs to the event loop that opened it.

Cancelling a task that waits here cancels the call on the service. Retries are those of `nnhal.client.sync.connection`.
Hand-written: gRPC's asyncio calls, streams and cancellation differ from the synchronous ones.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio

from nnhal.client.aio.memory_objects import MemoryObjects
from nnhal.client.aio.shm_transport import ShmTransport
from nnhal.client.core.open_errors import no_event_error, open_error, read_redirect, redirected
from nnhal.client.core.rpc_errors import hal_error
from nnhal.client.core.service_user import ServiceUser
from nnhal.client.core.session import (
    CHANNEL_OPTIONS,
    CLOSE_TIMEOUT_S,
    PendingReleases,
    Transport,
    closed_error,
    connection_replaced_error,
    gone_error,
    lost_error,
    method_path,
    program_name,
)
from nnhal.client.forks import forked_error, watch_forks
from nnhal.client.security.security import PLAIN, Security
from nnhal.client.shm.pool import is_same_host
from nnhal.client.trace_context import trace_metadata
from nnhal.errors import DeadObjectError, HalError, SessionLostError
from nnhal.probe import connection_problem
from nnhal.v1 import (
    buffer_pb2_grpc,
    burst_pb2,
    burst_pb2_grpc,
    cache_pb2_grpc,
    device_pb2_grpc,
    execution_pb2_grpc,
    fence_pb2_grpc,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

T = TypeVar("T")

_EncodedRun: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"
_EncodedStream: TypeAlias = "grpc.aio.StreamStreamMultiCallable[bytes, bytes]"


class Connection(MemoryObjects):
    """One session on one service. `open` it first. Close it when done, so that the service frees what it owned.

    Args:
        target: address of the service.
        transport: transport of executions.
        client_name: name of the client in the log of the service; "" for the name of the program.
        user: user who runs the service, if it runs on this machine; connections to one service share the object.
        security: credentials of the connection.
        redirected: whether the address is that of a redirect.
        needs: what the client is about to use, for a service that belongs to a fleet.

    Attributes:
        session: handle of the session.
        members: addresses of other services, as the service has sent them last.
        member: id of the service in its fleet, or "".
        lost: whether the session is lost, and with it its objects.
        shm: transport over shared memory, or None if the service is on another machine.
        version: version of the device, once it has been read.
        run, burst_stream: methods that take and return encoded messages, see `nnhal.run_messages`.
    """

    def __init__(
        self,
        target: str,
        transport: Transport = "auto",
        client_name: str = "",
        user: ServiceUser | None = None,
        security: Security = PLAIN,
        *,
        redirected: bool = False,
        needs: session_pb2.SessionNeeds | None = None,
    ) -> None:
        self._target = target
        self._security = security
        self._user = user or ServiceUser()
        self._redirected = redirected
        self._needs = needs
        self._transport = transport
        self._client_name = client_name or program_name()
        self._open_channel()
        self._releases = PendingReleases()
        self._resuming: asyncio.Future[None] | None = None
        self._reader: asyncio.Future[None] | None = None
        self._closed = self.lost = self._is_parents = False
        self._broken: grpc.StatusCode | None = None  # with which status the stream of the session has ended
        self._broken_at = 0.0  # and at which monotonic time
        self.session = b""
        self.members: tuple[str, ...] = ()
        self.member = ""
        self.shm: ShmTransport | None = None
        self.version: str | None = None
        watch_forks(self)

    def _open_channel(self) -> None:
        self._channel = self._security.aio_channel(self._target, CHANNEL_OPTIONS)
        self.device = device_pb2_grpc.DeviceStub(self._channel)
        self.prepared_model = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self.buffer = buffer_pb2_grpc.BufferStub(self._channel)
        self.burst = burst_pb2_grpc.BurstStub(self._channel)
        self.cache = cache_pb2_grpc.CacheStub(self._channel)
        self.execution = execution_pb2_grpc.ExecutionStub(self._channel)
        self.fence = fence_pb2_grpc.FenceStub(self._channel)
        self.run: _EncodedRun = self._channel.unary_unary(method_path(prepared_model_pb2, "Run"))
        self.burst_stream: _EncodedStream = self._channel.stream_stream(method_path(burst_pb2, "Stream"))
        self._memory_service = memory_pb2_grpc.MemoryServiceStub(self._channel)
        self._sessions = session_pb2_grpc.SessionStub(self._channel)

    async def open(
        self,
        timeout: float,
        *,
        accept_redirect: bool = False,
        placed: bool = False,
        continues: bool = False,
        placement: str = "",
    ) -> session_pb2.SessionRedirect | None:
        """Open the session.

        Args:
            timeout: seconds to wait for the service to respond.
            accept_redirect: whether the service may name another address instead.
            placed: whether another service has sent the client to this one.
            continues: whether the client has had a session before.
            placement: why another service has sent the client to this one, for operators.

        Returns:
            None, or a redirect; the connection is then closed.

        Raises:
            HalError: the service cannot be reached, does not respond within `timeout` seconds, or refuses.
        """
        self._user.check(self._target)
        request = session_pb2.OpenRequest(
            client_name=self._client_name,
            accept_redirect=accept_redirect,
            needs=self._needs,
            placed=placed,
            watch_members=True,
            continues=continues,
            placement=placement,
        )
        try:
            event = await self._open_stream(request, timeout)
            redirect = None if event.HasField("opened") else read_redirect(self._target, event, request)
        except BaseException:
            await self._channel.close()
            raise
        if redirect is not None:
            await self._channel.close()
            return redirect
        self.session = event.opened.session
        if self._transport == "auto" and is_same_host(self._target):
            self.shm = ShmTransport(event.opened, self)
        return None

    async def _open_stream(self, request: session_pb2.OpenRequest, timeout: float) -> session_pb2.SessionEvent:
        """Open the stream that keeps the session alive, and return its first event.

        Raises:
            HalError: the service cannot be reached, does not respond within `timeout` seconds, or refuses.
        """
        self._stream = stream = self._sessions.Open(request)
        try:
            async with asyncio.timeout(timeout):
                event = await stream.read()
        except BaseException as error:
            stream.cancel()
            if not isinstance(error, TimeoutError | grpc.RpcError):
                raise
            failure = error if isinstance(error, grpc.RpcError) else None
            problem = await asyncio.to_thread(connection_problem, self._target)
            if problem is None and failure is not None:
                problem = await asyncio.to_thread(self._security.problem, self._target, failure)
            raise open_error(self._target, timeout, failure, problem) from failure
        if not isinstance(event, session_pb2.SessionEvent):
            raise no_event_error(self._target)
        if event.HasField("opened"):
            self.members, self.member = tuple(event.opened.members), event.opened.member
            self._watch_stream()
        return event

    def _resumption(self, *, accept_redirect: bool = False) -> session_pb2.OpenRequest:
        """Return the request that resumes the session."""
        return session_pb2.OpenRequest(session=self.session, accept_redirect=accept_redirect, watch_members=True)

    def _watch_stream(self) -> None:
        self._stream.add_done_callback(self._on_stream_end)
        if self.member:  # otherwise there is nothing to read
            self._reader = asyncio.ensure_future(self._read_members(self._stream))

    async def _read_members(self, stream: Any) -> None:
        """Read which other services there are, until the stream ends or says so."""
        with contextlib.suppress(grpc.RpcError):  # `_on_stream_end` is called
            while isinstance(event := await stream.read(), session_pb2.SessionEvent):
                if event.HasField("closing"):
                    return
                self.members = tuple(event.members.members or event.opened.members) or self.members

    def _on_stream_end(self, ended: Any) -> None:
        if not self._closed and ended is self._stream:
            self._resuming = asyncio.ensure_future(self._resume(ended))

    async def _resume(self, ended: Any) -> None:
        """Resume the session after its stream broke, see `nnhal.client.sync.connection.Connection`."""
        code = await ended.code()
        if not self._closed and ended is self._stream:
            self._broken, self._broken_at = code, time.monotonic()
            await self._resume_if_unchanged()

    async def _resume_if_unchanged(self) -> bool:
        """Resume the session, unless the service has ended it. Return False if the service is no longer there."""
        if not self._user.is_unchanged(self._target):
            return False
        if (wait_s := self._user.settling_s(self._target, self._broken_at)) > 0:
            await asyncio.sleep(wait_s)
            return await self._resume_if_unchanged()
        if self._broken == grpc.StatusCode.UNAVAILABLE and not self._closed:
            self._broken = None
            self._stream = self._sessions.Open(self._resumption(), wait_for_ready=True)
            self._watch_stream()
        return True

    # ---- Calls --------------------------------------------------------------------------------------

    async def call(self, method: Callable[..., Awaitable[T]], request: Any) -> T:
        """Make a unary call.

        Raises:
            HalError: the call failed.
        """
        await self.flush_releases()
        with hal_errors():
            metadata = trace_metadata()
            return await (method(request) if metadata is None else method(request, metadata=metadata))

    async def send(self, method: Callable[..., Awaitable[T]], request: Any) -> Awaitable[T]:
        """Start a unary call, for `wait`."""
        await self.flush_releases()
        return method(request, metadata=trace_metadata())

    async def wait(self, call: Awaitable[T]) -> T:
        """Wait for the end of a call.

        Raises:
            HalError: the call failed.
        """
        with hal_errors():
            return await call

    async def call_idempotent(self, method: Callable[..., Awaitable[T]], request: Any) -> T:
        """Make a unary call whose result never changes. Retry once if the service could not be reached.

        Raises:
            HalError: the call failed.
        """
        try:
            return await self.call(method, request)
        except DeadObjectError:
            return await self.call(method, request)

    async def stream(self, method: Callable[..., AsyncIterable[T]], request: Any) -> AsyncIterator[T]:
        """Make a call that answers with a stream.

        Raises:
            HalError: the call failed.
        """
        await self.flush_releases()
        with hal_errors():
            metadata = trace_metadata()
            async for message in method(request) if metadata is None else method(request, metadata=metadata):
                yield message

    async def flush_releases(self) -> None:
        """Release discarded objects. Called before anything is sent to the service.

        Raises:
            SessionLostError: the connection has been closed.
            DeadObjectError: the service has ended.
        """
        if self._closed:
            raise self._closed_error()
        if self._broken is not None and not await self._resume_if_unchanged():
            raise gone_error(self._target, in_order=self._broken == grpc.StatusCode.OK)
        if not (handles := self._releases.take_all()):
            return
        try:
            await self._sessions.Release(session_pb2.ReleaseRequest(session=self.session, handles=handles))
        except (grpc.RpcError, grpc.aio.UsageError):
            # the next call fails in the same way and raises the error; releasing twice is harmless
            self._releases.add(handles)
        except BaseException:
            self._releases.add(handles)
            raise

    def discard(self, *handles: bytes) -> None:
        """Release objects with the next call. Makes no call itself, so that finalizers may use it."""
        self._releases.add(handles)

    # ---- Life ---------------------------------------------------------------------------------------

    async def is_alive(self, timeout: float) -> bool:
        """Return whether the session still exists. If its channel is broken, continue the session on another one.

        The channel itself would connect again only after a delay.

        Raises:
            DeadObjectError: the service cannot be reached, or does not answer within `timeout` seconds.
            SessionLostError: the connection has been closed.
        """
        if self._closed:
            raise self._closed_error()
        if self._user.is_unchanged(self._target):
            try:
                nothing = session_pb2.ReleaseRequest(session=self.session)
                await self._sessions.Release(nothing, timeout=timeout)
                return True
            except grpc.RpcError as error:
                if isinstance(hal_error(error), SessionLostError):
                    return False
        if (problem := await asyncio.to_thread(connection_problem, self._target)) is not None:
            if self._redirected:  # other services may have the address that the client was redirected from
                return False
            raise open_error(self._target, timeout, None, problem)
        try:
            await self._continue(timeout)
        except DeadObjectError:
            raise
        except HalError:  # it is lost, or its service does not continue it
            return False
        return True

    async def _continue(self, timeout: float) -> None:
        """Continue the session on another channel, which may lead to another address.

        Raises:
            HalError: the service cannot be reached, or does not know the session.
        """
        self._user.check(self._target)
        broken = self._channel
        self._open_channel()
        await broken.close()
        request = self._resumption(accept_redirect=not self._redirected)
        event = await self._open_stream(request, timeout)
        if not event.HasField("opened"):
            self._target = redirected(self._target, read_redirect(self._target, event, request).address)
            self._redirected = True
            await self._continue(timeout)
        self._broken = None

    @property
    def target(self) -> str:
        """Address of the service."""
        return self._target

    def _closed_error(self) -> SessionLostError:
        if self._is_parents:
            return forked_error()
        return lost_error() if self.lost else closed_error()

    def leave_to_parent(self) -> None:
        """Refuse all further calls, because this process is a fork of the one that has connected."""
        self._closed = self._is_parents = True

    def abandon(self) -> None:
        """Make no more calls, because the session is lost. Its objects say so; calls in progress go on."""
        self.lost = self.lost or not self._closed
        self._closed = True
        if self.shm is not None:
            self.shm.close()

    async def close(self) -> None:
        """End the session. A second call does nothing. It is not an error if the service is gone."""
        if self._closed:
            return
        self._closed = True
        if self.shm is not None:
            self.shm.close()
        try:
            # if this fails, the service ends the session by itself, because its stream ends too
            with contextlib.suppress(grpc.RpcError):
                await self._sessions.Close(session_pb2.CloseRequest(session=self.session), timeout=CLOSE_TIMEOUT_S)
        finally:
            await self.close_channel()

    async def close_channel(self) -> None:
        """Close the channel, which cuts off the calls in progress. A second call does nothing."""
        self._stream.cancel()
        if self._reader is not None:
            self._reader.cancel()
        await self._channel.close()


@contextlib.contextmanager
def hal_errors() -> Iterator[None]:
    """Convert errors of gRPC to HAL errors."""
    try:
        yield
    except grpc.RpcError as error:
        raise hal_error(error) from error
    except grpc.aio.UsageError:  # another task has closed the channel
        raise connection_replaced_error() from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # the task was not cancelled: gRPC cancels the calls of a channel that is closed
        raise connection_replaced_error() from None
