"""Burst: IBurst over the contract, as single calls or over one stream, which responds in order."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import NamedTuple

import grpc

from nnhal import wire
from nnhal.errors import HalError, SessionLostError, invalid_argument
from nnhal.types import OMITTED, ExecutionConfig, ExecutionResult, Memory, Request
from nnhal.v1 import burst_pb2, burst_pb2_grpc, types_pb2
from nnhal_driver.execution.burst import NOT_CACHED, Burst
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_service.grpc_support.call_context import SessionCall, abort_call, call_deadline, earliest, field_or_omitted
from nnhal_service.grpc_support.errors import error_detail, internal_error, log_error
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.message_caches.decoded_request_cache import DecodedRequestCache, ReceivedMessage
from nnhal_service.message_caches.response_template_cache import ResponseTemplateCache
from nnhal_service.message_caches.validated_request_cache import ValidatedRequestCache
from nnhal_service.metrics.calls import CallMeter, MeteredCall
from nnhal_service.request_id import request_id
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.sessions.cancellation_scope import CancellationScope
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import STOPPING, Session, stopping
from nnhal_service.sessions.session_registry import SessionRegistry

BurstRequest = burst_pb2.BurstExecuteRequest | burst_pb2.BurstExecuteWithConfigRequest

REJECTING_THREADS = 8
"""Additional threads of the pool for streams; they reject streams above the limit burst_streams."""
_STREAM = "Burst.Stream"
"""Name of the method, for metrics and logs of the calls of a stream."""
_SMALL: AbstractContextManager[object] = nullcontext()
"""Context in which an error is sent."""


class _BurstCall(NamedTuple):
    """An execution, or the release of a cached memory.

    Attributes:
        message: of the execution, perhaps without tensor bytes; None for a release.
        has_identifiers: whether memories are to be cached, or the number of identifiers is wrong.
        released: identifier of the memory to release.
    """

    session: bytes
    burst: bytes
    message: BurstRequest | None = None
    config: ExecutionConfig = ExecutionConfig()
    deadline_ns: int = OMITTED
    identifiers: tuple[int, ...] = ()
    has_identifiers: bool = False
    released: int = NOT_CACHED

    @property
    def names_burst(self) -> bool:
        """The message names its session and burst."""
        return bool(self.session or self.burst)


class _BurstTarget(NamedTuple):
    """Session and burst of a call."""

    session: Session
    burst: Burst


class _StreamSlots:
    """Number of open streams, each of which occupies a thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Count a stream for the duration of the context.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit burst_streams.
        """
        with self._lock:
            self._limits.require("burst_streams", self._count + 1, "the service would have")
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


class BurstServicer(ServicerBase, burst_pb2_grpc.BurstServicer):
    """Servicer of Burst. `Stream` occupies a thread while it is open, so it runs on a pool of its own."""

    def __init__(
        self,
        sessions: SessionRegistry,
        limits: Limits,
        quota: MemoryQuota,
        unread: UnreadResponses,
        calls: CallMeter,
        count_error: Callable[[str, HalError], None],
    ) -> None:
        super().__init__(sessions, limits, quota, calls)
        self._unread = unread
        self._count_error = count_error
        self._requests = ValidatedRequestCache(limits)
        self._messages = DecodedRequestCache(
            self._requests, burst_pb2.BurstStreamRequest, lambda message: message.execute.request, _describe
        )
        self._responses = ResponseTemplateCache(
            burst_pb2.BurstStreamResponse, lambda response: response.result, limits, quota
        )
        self._slots = _StreamSlots(limits)

    @handler()
    def ExecuteSynchronously(
        self, request: burst_pb2.BurstExecuteRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute a request, and respond when it has finished."""
        return self._execute_unary(request, context)

    @handler()
    def ExecuteSynchronouslyWithConfig(
        self, request: burst_pb2.BurstExecuteWithConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute a request with hints, and respond when it has finished."""
        return self._execute_unary(request, context)

    def _execute_unary(self, request: BurstRequest, context: grpc.ServicerContext) -> types_pb2.ExecutionResult:
        started_ns = time.perf_counter_ns()
        call = _describe_execution(request)
        session, burst = target = self._find(call.session, call.burst, context)
        with self._calls.start(
            session, burst.prepared_model, "burst", started_ns, request.ByteSize(), context
        ) as metered:
            deadline_ns = earliest(call.deadline_ns, call_deadline(context))
            with SessionCall(session, context) as metered.cancellation:
                result = self._execute(target, call, request, deadline_ns, metered, started_ns)
            message = self._result_message(result, session)
            metered.note(result, message.ByteSize())
        return message

    @handler()
    def ReleaseMemoryResource(
        self, request: burst_pb2.ReleaseMemoryResourceRequest, context: grpc.ServicerContext
    ) -> burst_pb2.ReleaseMemoryResourceResponse:
        """Remove a memory from the cache of the burst."""
        burst = self._find(request.session, request.burst, context).burst
        burst.release_memory_resource(request.memory_identifier_token)
        return burst_pb2.ReleaseMemoryResourceResponse()

    @handler(raw=True, pool="bursts")
    def Stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Yield the responses to a stream of calls. A call that fails responds with its error; the stream goes on."""
        executions = CancellationScope()
        if not context.add_callback(executions.cancel):
            executions.cancel()
        deadline_ns = call_deadline(context)
        named: _BurstCall | None = None  # the last call that named its session and burst
        with self._slots.acquire(), _StreamLife(context) as life:
            for encoded in _until_disconnected(requests, context):
                life.begin_call()
                started_ns = time.perf_counter_ns()
                received = self._messages.decode(encoded)
                named = received.call if received.call.names_burst else named
                try:
                    if named is None:
                        raise invalid_argument("the first message of a stream must name its session and burst")
                    target = self._find(named.session, named.burst, context)
                    life.bind(target.session)
                    cancellation, size = executions.next(), len(encoded)
                    response = self._respond(target, received, deadline_ns, cancellation, started_ns, size, context)
                    sending = self._unread.sending(target.session, context, len(response))
                except SessionLostError:
                    raise  # no later call of the stream could succeed
                except HalError as error:
                    response, sending = self._error_response(error, context), _SMALL
                except BaseException as error:
                    response, sending = self._error_response(internal_error(error), context), _SMALL
                with sending:
                    yield response
                life.end_call()

    def _error_response(self, error: HalError, context: grpc.ServicerContext) -> bytes:
        """Return the response to a call that has failed, and count and log it."""
        self._count_error(_STREAM, error)
        log_error(_STREAM, error)
        return burst_pb2.BurstStreamResponse(error=error_detail(error, request_id(context))).SerializeToString()

    def _respond(
        self,
        target: _BurstTarget,
        received: ReceivedMessage[burst_pb2.BurstStreamRequest, _BurstCall],
        stream_deadline_ns: int,
        cancellation: Cancellation,
        started_ns: int,
        size: int,
        context: grpc.ServicerContext,
    ) -> bytes:
        call, message = received.call, received.call.message
        if message is None:
            target.burst.release_memory_resource(call.released)
            released = burst_pb2.BurstStreamResponse(released=burst_pb2.ReleaseMemoryResourceResponse())
            return released.SerializeToString()
        session, burst = target
        with self._calls.start(session, burst.prepared_model, "stream", started_ns, size, context) as metered:
            metered.cancellation = cancellation
            deadline_ns = earliest(call.deadline_ns, stream_deadline_ns)
            result = self._execute(target, call, message, deadline_ns, metered, started_ns, received)
            response = self._responses.encode(result, burst.prepared_model, session)
            metered.note(result, len(response))
        return response

    def _find(self, session: bytes, burst: bytes, context: grpc.ServicerContext) -> _BurstTarget:
        found = self._sessions.get(session, context)
        return _BurstTarget(found, found.get(burst, Burst))

    def _execute(
        self,
        target: _BurstTarget,
        call: _BurstCall,
        message: BurstRequest,
        deadline_ns: int,
        metered: MeteredCall,
        started_ns: int,
        received: ReceivedMessage[burst_pb2.BurstStreamRequest, _BurstCall] | None = None,
    ) -> ExecutionResult:
        """Execute a request. `received` is the message that contains the call, if it came over a stream."""
        session, burst, config = target.session, target.burst, call.config
        cancellation = metered.cancellation
        assert cancellation is not None
        if call.has_identifiers:
            request = self._requests.decode(session, message.request)
            self._charge(target, message, request)
            return burst.execute_synchronously(
                request, call.identifiers, config, deadline_ns, cancellation, session.owner, metered
            )
        if received is not None and call.names_burst and isinstance(message, burst_pb2.BurstExecuteRequest):
            valid = self._messages.validate(session, burst.prepared_model, received, config)
        else:
            valid = self._requests.validate(session, burst.prepared_model, message.request, config)
        with burst.exclusive:
            prepared, owner = burst.prepared_model, session.owner
            return prepared.execute_valid(valid, config, deadline_ns, cancellation, owner, started_ns, metered)

    def _charge(self, target: _BurstTarget, message: BurstRequest, request: Request) -> None:
        """Charge the inline pools that the burst is going to cache to the quota, as memory of the client."""
        for pool_message, pool, identifier in zip(
            message.request.pools, request.pools, message.memory_identifier_tokens, strict=False
        ):
            is_inline = isinstance(pool, Memory) and pool_message.pool.WhichOneof("memory") == "inline"
            if is_inline and identifier > NOT_CACHED and not target.burst.is_cached(identifier):
                assert isinstance(pool, Memory)
                self._quota.charge(target.session, pool.buffer)


def _describe(message: burst_pb2.BurstStreamRequest) -> _BurstCall:
    """Return the call in a message of a stream."""
    call = getattr(message, message.WhichOneof("call") or "execute")
    if isinstance(call, burst_pb2.ReleaseMemoryResourceRequest):
        return _BurstCall(call.session, call.burst, released=call.memory_identifier_token)
    return _describe_execution(call)


def _describe_execution(message: BurstRequest) -> _BurstCall:
    if isinstance(message, burst_pb2.BurstExecuteRequest):
        config = ExecutionConfig(message.measure_timing, field_or_omitted(message, "loop_timeout_duration_ns"))
    else:
        config = wire.to_execution_config(message.config)
    identifiers = tuple(message.memory_identifier_tokens)
    has_identifiers = identifiers != (NOT_CACHED,) * len(message.request.pools)
    deadline_ns = field_or_omitted(message, "deadline_ns")
    return _BurstCall(message.session, message.burst, message, config, deadline_ns, identifiers, has_identifiers)


class _StreamLife:
    """Life of a stream that ends with the sessions that it uses. When they drain, the call in progress is finished."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._sessions: list[Session] = []
        self._lock = threading.Lock()
        self._is_busy = False
        self._is_draining = False

    def bind(self, session: Session) -> None:
        """Bind the stream to a session."""
        if session not in self._sessions:
            self._sessions.append(session)
            session.on_close(self._cancel)
            session.on_drain(self._drain)

    def begin_call(self) -> None:
        """Note that a call has arrived."""
        with self._lock:
            self._is_busy = True

    def end_call(self) -> None:
        """Note that the response to a call has been sent.

        Raises:
            HalError: DEVICE_UNAVAILABLE: the session drains.
        """
        with self._lock:
            self._is_busy = False
            if self._is_draining:
                raise stopping()

    def _drain(self, reason: str) -> None:
        with self._lock:
            self._is_draining = True
            is_idle = not self._is_busy
        if is_idle:
            self._cancel(reason)

    def _cancel(self, reason: str) -> None:
        if reason == STOPPING:
            abort_call(self._context, stopping())
        else:
            self._context.cancel()

    def __enter__(self) -> "_StreamLife":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for session in self._sessions:
            session.off_close(self._cancel)
            session.off_drain(self._drain)


def _until_disconnected(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """Yield requests until the stream ends. gRPC raises various exceptions when the client disconnects."""
    try:
        yield from requests
    except HalError:
        raise
    except Exception:
        if context.is_active():
            raise
