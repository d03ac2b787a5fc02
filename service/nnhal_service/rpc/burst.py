"""Burst: IBurst over the contract, as single calls or over one stream, which responds in order."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import NamedTuple

import grpc
from google.protobuf.message import DecodeError

from nnhal import wire
from nnhal.errors import HalError, SessionLostError, invalid_argument
from nnhal.run_messages import RunCall, read_stream_run, run_call
from nnhal.types import OMITTED, ExecutionConfig, ExecutionResult, Memory, Request
from nnhal.v1 import burst_pb2, burst_pb2_grpc, prepared_model_pb2, types_pb2
from nnhal_driver.execution.burst import NOT_CACHED, Burst
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_service.grpc_support.call_context import abort_call, call_deadline, earliest, field_or_omitted
from nnhal_service.grpc_support.errors import error_detail, internal_error, log_error
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.metrics.calls import CallMeter, MeteredCall
from nnhal_service.request_id import request_id
from nnhal_service.requests.prepared_request import PreparedRequest, find_model
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
"""Context of messages that are too small to count."""


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


class _NamedTarget:
    """Session and burst that the last message of a stream has named which named any."""

    def __init__(self) -> None:
        self.session = self.burst = b""

    def session_of(self, call: RunCall | _BurstCall) -> bytes:
        """Return the handle of a call's session.

        Raises:
            HalError: INVALID_ARGUMENT: no message has named it yet.
        """
        if call.session or (isinstance(call, _BurstCall) and call.burst):
            self.session = call.session
            self.burst = call.burst if isinstance(call, _BurstCall) else self.burst
        elif not self.session and not self.burst:
            raise invalid_argument("the first message of a stream must name its session and burst")
        return self.session


class _Received(NamedTuple):
    """Circumstances of a call of a stream.

    Attributes:
        started_ns: time.perf_counter_ns() at the receipt.
        size: size of the message in bytes.
        stream_deadline_ns: deadline of the stream, as an instant; -1: none.
    """

    started_ns: int
    size: int
    stream_deadline_ns: int
    cancellation: Cancellation
    context: grpc.ServicerContext


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
        self._slots = _StreamSlots(limits)
        self._unbound: set[_StreamLife] = set()

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
            with self._running(session, context, metered) as metered.cancellation:
                result = self._execute(target, call, request, deadline_ns, metered, started_ns)
            message = self._result_message(result, session, started_ns)
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
        named = _NamedTarget()
        with self._slots.acquire(), _StreamLife(context, self._unbound) as life:
            for encoded in _until_disconnected(requests, context):
                life.begin_call()
                call = read_stream_run(encoded) or _read_call(encoded)
                received = _Received(time.perf_counter_ns(), len(encoded), deadline_ns, executions.next(), context)
                try:
                    session = self._sessions.get(named.session_of(call), context)
                    life.bind(session)
                    with self._quota.reserve_request(session, len(encoded)) or _SMALL:
                        response = self._respond(session, named, call, received)
                    sending = self._unread.sending(session, context, len(response))
                except SessionLostError:
                    raise  # no later call of the stream could succeed
                except HalError as error:
                    response, sending = self._error_response(error, context), _SMALL
                except BaseException as error:
                    response, sending = self._error_response(internal_error(error), context), _SMALL
                with sending:
                    yield response
                life.end_call()

    def end_unbound_streams(self) -> None:
        """End the streams whose sessions are not known, because they have had no call: no session ends them."""
        for life in tuple(self._unbound):
            life.end(STOPPING)

    def _error_response(self, error: HalError, context: grpc.ServicerContext) -> bytes:
        """Return the response to a call that has failed, and count and log it."""
        self._count_error(_STREAM, error)
        log_error(_STREAM, error)
        return burst_pb2.BurstStreamResponse(error=error_detail(error, request_id(context))).SerializeToString()

    def _respond(
        self, session: Session, named: "_NamedTarget", call: "RunCall | _BurstCall", received: "_Received"
    ) -> bytes:
        """Return the encoded response to a call of a stream."""
        if isinstance(call, RunCall):
            return self._run(session, call, received)
        burst = session.get(named.burst, Burst)
        if call.message is None:
            burst.release_memory_resource(call.released)
            released = burst_pb2.BurstStreamResponse(released=burst_pb2.ReleaseMemoryResourceResponse())
            return released.SerializeToString()
        with self._meter(session, burst.prepared_model, received) as metered:
            deadline_ns = earliest(call.deadline_ns, received.stream_deadline_ns)
            target = _BurstTarget(session, burst)
            result = self._execute(target, call, call.message, deadline_ns, metered, received.started_ns)
            response = burst_pb2.BurstStreamResponse(result=self._result_message(result, session, received.started_ns))
            encoded = response.SerializeToString()
            metered.note(result, len(encoded))
        return encoded

    def _run(self, session: Session, call: RunCall, received: "_Received") -> bytes:
        """Execute a defined request, and return the encoded response."""
        defined = session.get(call.definition, PreparedRequest)
        prepared, use = find_model(session, defined.target)
        with self._meter(session, prepared, received) as metered, use:
            deadline_ns = earliest(call.deadline_ns, received.stream_deadline_ns)
            result = defined.execute(prepared, session, call.values, deadline_ns, received.started_ns, metered)
            response = self._encode_run(defined, result, session, received.started_ns, stream=True)
            metered.note(result, len(response))
        return response

    def _meter(self, session: Session, prepared: PreparedModel, received: "_Received") -> MeteredCall:
        metered = self._calls.start(session, prepared, "stream", received.started_ns, received.size, received.context)
        metered.cancellation = received.cancellation
        return metered

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
    ) -> ExecutionResult:
        """Execute a request."""
        session, burst, config = target.session, target.burst, call.config
        cancellation = metered.cancellation
        assert cancellation is not None
        if call.has_identifiers:
            request = self._request(session, message.request)
            self._charge(target, message, request)
            return burst.execute_synchronously(
                request, call.identifiers, config, deadline_ns, cancellation, session.owner, metered
            )
        prepared = burst.prepared_model
        valid = prepared.validate_execution(self._request(session, message.request), config)
        with burst.exclusive:
            return prepared.execute_valid(valid, config, deadline_ns, cancellation, session.owner, started_ns, metered)

    def _charge(self, target: _BurstTarget, message: BurstRequest, request: Request) -> None:
        """Charge the inline pools that the burst is going to cache to the quota, as memory of the client."""
        for pool_message, pool, identifier in zip(
            message.request.pools, request.pools, message.memory_identifier_tokens, strict=False
        ):
            is_inline = isinstance(pool, Memory) and pool_message.pool.WhichOneof("memory") == "inline"
            if is_inline and identifier > NOT_CACHED and not target.burst.is_cached(identifier):
                assert isinstance(pool, Memory)
                self._quota.charge(target.session, pool.buffer)


def _read_call(encoded: bytes) -> RunCall | _BurstCall:
    """Return the call in a message of a stream.

    Raises:
        HalError: INVALID_ARGUMENT: the bytes are not such a message.
    """
    message = burst_pb2.BurstStreamRequest()
    try:
        message.ParseFromString(encoded)
    except DecodeError as error:
        raise invalid_argument(f"the request cannot be decoded: {error}") from None
    call = getattr(message, message.WhichOneof("call") or "execute")
    if isinstance(call, prepared_model_pb2.RunRequest):
        return run_call(call)
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
    """Life of a stream that ends with the sessions that it uses. When they drain, the call in progress is finished.

    Args:
        context: of the stream.
        unbound: contains the stream until it is bound to a session.
    """

    def __init__(self, context: grpc.ServicerContext, unbound: "set[_StreamLife]") -> None:
        self._context = context
        self._unbound = unbound
        self._sessions: list[Session] = []
        self._lock = threading.Lock()
        self._is_busy = False
        self._drain_reason = ""

    def bind(self, session: Session) -> None:
        """Bind the stream to a session."""
        if session not in self._sessions:
            self._unbound.discard(self)
            self._sessions.append(session)
            session.on_close(self.end)
            session.on_drain(self._drain)

    def begin_call(self) -> None:
        """Note that a call has arrived."""
        with self._lock:
            self._is_busy = True

    def end_call(self) -> None:
        """Note that the response to a call has been sent, and end the stream if a session drains.

        Raises:
            HalError: DEVICE_UNAVAILABLE: the service stops.
        """
        with self._lock:
            self._is_busy = False
            reason = self._drain_reason
        if reason == STOPPING:
            raise stopping()
        if reason:
            self.end(reason)

    def _drain(self, reason: str) -> None:
        with self._lock:
            self._drain_reason = reason
            is_idle = not self._is_busy
        if is_idle:
            self.end(reason)

    def end(self, reason: str) -> None:
        """End the stream. Never blocks."""
        if reason == STOPPING:
            abort_call(self._context, stopping())
        else:
            self._context.cancel()

    def __enter__(self) -> "_StreamLife":
        self._unbound.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._unbound.discard(self)
        for session in self._sessions:
            session.off_close(self.end)
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
