"""Burst: IBurst over the contract, as single calls or over one stream, which responds in order."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import grpc
from google.protobuf.message import DecodeError

from nnhal.errors import HalError, SessionLostError, invalid_argument
from nnhal.run_messages import RunCall, read_stream_run, run_call
from nnhal.types import ExecutionResult, Memory, Request
from nnhal.v1 import burst_pb2, burst_pb2_grpc, prepared_model_pb2, types_pb2
from nnhal_driver.execution.burst import NOT_CACHED, Burst
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_service.grpc_support.call_context import field_or_omitted
from nnhal_service.grpc_support.errors import error_detail, report_error
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.request_id import request_id
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.burst_stream import OpenStreams, until_disconnected
from nnhal_service.rpc.servicer import GrpcCall, ServicerBase, UnaryCall, execution_config
from nnhal_service.sessions.session import Session

ExecuteRequest: TypeAlias = burst_pb2.BurstExecuteRequest | burst_pb2.BurstExecuteWithConfigRequest
BurstRequest: TypeAlias = ExecuteRequest | burst_pb2.ReleaseMemoryResourceRequest

REJECTING_THREADS = 8
"""Additional threads of the pool for streams; they reject streams above the limit burst_streams."""
_STREAM = "Burst.Stream"
"""Name of the method, for metrics and logs of the calls of a stream."""
_UNCOUNTED: AbstractContextManager[object] = nullcontext()
"""Context in which an error is sent: it is too small to count."""


class _NamedTarget:
    """Session and burst that the last message of a stream has named which named any."""

    def __init__(self) -> None:
        self.session = self.burst = b""

    def session_of(self, request: RunCall | BurstRequest) -> bytes:
        """Return the handle of a request's session."""
        burst = b"" if isinstance(request, RunCall) else request.burst
        if request.session or burst:
            self.session = request.session
            self.burst = self.burst if isinstance(request, RunCall) else burst
        elif not self.session and not self.burst:
            raise invalid_argument("the first message of a stream must name its session and burst")
        return self.session


class BurstServicer(ServicerBase, burst_pb2_grpc.BurstServicer):
    """Servicer of Burst. `Stream` occupies a thread while it is open, so it runs on a pool of its own."""

    def __init__(
        self, parts: ServiceParts, unread: UnreadResponses, count_error: Callable[[str, HalError], None]
    ) -> None:
        super().__init__(parts)
        self._unread = unread
        self._count_error = count_error
        self.streams = OpenStreams(parts)
        self.end_unbound_streams = self.streams.end_unbound

    @handler()
    def ExecuteSynchronously(self, request: ExecuteRequest, context: grpc.ServicerContext) -> types_pb2.ExecutionResult:
        """Execute a request, perhaps with hints, and respond when it has finished."""
        call = UnaryCall("burst", request.ByteSize(), context)
        session = self._sessions.get(request.session, context)
        return self._execute_on(session.get(request.burst, Burst), session, request, call)

    ExecuteSynchronouslyWithConfig = ExecuteSynchronously

    @handler()
    def ReleaseMemoryResource(
        self, request: burst_pb2.ReleaseMemoryResourceRequest, context: grpc.ServicerContext
    ) -> burst_pb2.ReleaseMemoryResourceResponse:
        """Remove a memory from the cache of the burst."""
        burst = self._sessions.get(request.session, context).get(request.burst, Burst)
        burst.release_memory_resource(request.memory_identifier_token)
        return burst_pb2.ReleaseMemoryResourceResponse()

    @handler(raw=True, pool="bursts")
    def Stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Yield the responses to a stream of calls. A call that fails responds with its error; the stream goes on."""
        named = _NamedTarget()
        with self.streams.open(context) as stream:
            for encoded in until_disconnected(requests, context):
                call = stream.begin_call("stream", len(encoded))
                request = read_stream_run(encoded) or _read_request(encoded)
                try:
                    session = self._sessions.get(named.session_of(request), context)
                    stream.bind(session)
                    response = self._respond(session, named, request, call)
                    sending = self._unread.sending(session, context, len(response))
                except SessionLostError:
                    raise  # no later call of the stream could succeed
                except BaseException as error:
                    response, sending = self._error_response(error, context), _UNCOUNTED
                with sending:
                    yield response
                stream.end_call()

    def _error_response(self, error: BaseException, context: grpc.ServicerContext) -> bytes:
        """Return the response to a call that has failed, and count and log it."""
        detail = error_detail(report_error(_STREAM, error, self._count_error), request_id(context))
        return burst_pb2.BurstStreamResponse(error=detail).SerializeToString()

    def _respond(self, session: Session, named: _NamedTarget, request: RunCall | BurstRequest, call: GrpcCall) -> bytes:
        """Return the encoded response to a message of a stream."""
        if isinstance(request, RunCall):
            return self._run(call, session, request)
        burst = session.get(named.burst, Burst)
        if isinstance(request, burst_pb2.ReleaseMemoryResourceRequest):
            burst.release_memory_resource(request.memory_identifier_token)
            response = burst_pb2.BurstStreamResponse(released=burst_pb2.ReleaseMemoryResourceResponse())
        else:
            response = burst_pb2.BurstStreamResponse(result=self._execute_on(burst, session, request, call))
        return response.SerializeToString()

    def _execute_on(
        self, burst: Burst, session: Session, message: ExecuteRequest, call: GrpcCall
    ) -> types_pb2.ExecutionResult:
        """Execute a request on a burst, and return the message of its result."""

        def execute(call: ExecutionCall) -> ExecutionResult:
            request = self._request(session, message.request)
            self._charge(session, burst, message, request)
            return burst.execute_synchronously(
                request, message.memory_identifier_tokens, execution_config(message), call
            )

        deadline_ns = field_or_omitted(message, "deadline_ns")
        return self._execute(call, session, burst.prepared_model, deadline_ns, execute)

    def _charge(self, session: Session, burst: Burst, message: ExecuteRequest, request: Request) -> None:
        """Charge the inline pools that the burst is going to cache to the quota, as memory of the client."""
        for pool_message, pool, identifier in zip(
            message.request.pools, request.pools, message.memory_identifier_tokens, strict=False
        ):
            is_inline = isinstance(pool, Memory) and pool_message.pool.WhichOneof("memory") == "inline"
            if is_inline and identifier > NOT_CACHED and not burst.is_cached(identifier):
                assert isinstance(pool, Memory)
                self._quota.charge(session, pool.buffer)


def _read_request(encoded: bytes) -> RunCall | BurstRequest:
    """Return the call in a message of a stream."""
    message = burst_pb2.BurstStreamRequest()
    try:
        message.ParseFromString(encoded)
    except DecodeError as error:
        raise invalid_argument(f"the request cannot be decoded: {error}") from None
    request: prepared_model_pb2.RunRequest | BurstRequest = getattr(message, message.WhichOneof("call") or "execute")
    return run_call(request) if isinstance(request, prepared_model_pb2.RunRequest) else request
