"""Burst: IBurst over the contract, call by call or over one stream, which is answered in order."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import grpc

from driver.burst import NOT_KEPT, Burst
from driver.cancellation import Cancellation
from nnhal import wire
from nnhal.errors import HalError, SessionLostError, invalid_argument
from nnhal.types import OMITTED, ExecutionConfig, ExecutionResult, Memory, Request
from nnhal.v1 import burst_pb2, burst_pb2_grpc, types_pb2
from service.decoding import in_bytes
from service.known_answers import KnownAnswers
from service.known_messages import KnownMessages, Received
from service.known_requests import KnownRequests
from service.limits import Limits, MemoryQuota
from service.returning import Returning
from service.rpc import (
    answering,
    answering_each,
    call_deadline,
    cancelled_by,
    earlier,
    error_detail,
    internal,
    optional_ns,
)
from service.sessions import Session, Sessions
from service.succession import Succession

ExecuteRequest = burst_pb2.BurstExecuteRequest | burst_pb2.BurstExecuteWithConfigRequest

REFUSING_THREADS = 8
"""Of the pool for streams, beyond the limit on open ones: they answer for those that are too many."""


class _Call(NamedTuple):
    """What a message is about: an execution, or, where `message` is None, memory that is to be forgotten.

    Attributes:
        message: of the execution; it may lack its values.
        keeps: whether memories are kept, or there are identifiers that make no sense.
    """

    session: bytes
    burst: bytes
    message: ExecuteRequest | None = None
    config: ExecutionConfig = ExecutionConfig()
    deadline_ns: int = OMITTED
    identifiers: tuple[int, ...] = ()
    keeps: bool = False
    released: int = NOT_KEPT

    @property
    def is_named(self) -> bool:
        """Whether it says which session and burst it is about."""
        return bool(self.session or self.burst)


class _Called(NamedTuple):
    """Whom a call is about."""

    session: Session
    burst: Burst


class _Open:
    """How many streams are open: each holds a thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts one for as long as it lasts.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit burst_streams.
        """
        with self._lock:
            self._limits.hold("burst_streams", self._count + 1, "the service would have")
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


class BurstServicer(burst_pb2_grpc.BurstServicer):
    """The RPCs. `Stream` reads from its client all the time: run it on a pool of its own."""

    def __init__(self, sessions: Sessions, limits: Limits, quota: MemoryQuota) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota
        self._known = KnownRequests(limits)
        self._messages = KnownMessages(
            self._known, burst_pb2.BurstStreamRequest, lambda one: one.execute.request, _call
        )
        self._answers = KnownAnswers(burst_pb2.BurstStreamResponse, lambda one: one.result, limits, quota)
        self._open = _Open(limits)

    @answering
    def ExecuteSynchronously(
        self, request: burst_pb2.BurstExecuteRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Runs and answers when finished."""
        return self._answered(request, context)

    @answering
    def ExecuteSynchronouslyWithConfig(
        self, request: burst_pb2.BurstExecuteWithConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """The same, with hints."""
        return self._answered(request, context)

    def _answered(self, request: ExecuteRequest, context: grpc.ServicerContext) -> types_pb2.ExecutionResult:
        call = _execution(request)
        called = self._called(call)
        deadline_ns = earlier(call.deadline_ns, call_deadline(context))
        result = self._executed(called, call, request, deadline_ns, cancelled_by(context))
        return wire.result_message(result, Returning(called.session, self._limits["inline_bytes"], self._quota))

    @answering
    def ReleaseMemoryResource(
        self, request: burst_pb2.ReleaseMemoryResourceRequest, context: grpc.ServicerContext
    ) -> burst_pb2.ReleaseMemoryResourceResponse:
        """Forgets a memory."""
        self._called(request).burst.release_memory_resource(request.memory_identifier_token)
        return burst_pb2.ReleaseMemoryResourceResponse()

    @in_bytes
    @answering_each
    def Stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:  # type: ignore[override]
        """The same calls, one after another. What fails answers with its error, and the stream goes on."""
        executions = Succession()
        if not context.add_callback(executions.cancel):
            executions.cancel()
        deadline_ns = call_deadline(context)
        named: _Call | None = None  # the last call that said which session and burst it is about
        with self._open.one(), _ended_with_session(context) as session_of:
            for encoded in _until_gone(requests, context):
                received = self._messages.decode(encoded)
                named = received.call if received.call.is_named else named
                try:
                    if named is None:
                        raise invalid_argument("the first message of a stream names its session and burst")
                    called = self._called(named)
                    session_of(called.session)
                    answer = self._answer(called, received, deadline_ns, executions.next())
                except SessionLostError:
                    raise  # nothing that comes after it could be answered
                except HalError as error:
                    answer = _failed(error)
                except Exception as error:
                    answer = _failed(internal(error))
                yield answer

    def _answer(
        self,
        called: _Called,
        received: Received[burst_pb2.BurstStreamRequest, _Call],
        stream_deadline_ns: int,
        cancellation: Cancellation,
    ) -> bytes:
        call, message = received.call, received.call.message
        if message is None:
            called.burst.release_memory_resource(call.released)
            released = burst_pb2.BurstStreamResponse(released=burst_pb2.ReleaseMemoryResourceResponse())
            return released.SerializeToString()
        deadline_ns = earlier(call.deadline_ns, stream_deadline_ns)
        result = self._executed(called, call, message, deadline_ns, cancellation, received)
        return self._answers.encode(result, called.burst.prepared_model, called.session)

    def _called(self, call: "_Call | burst_pb2.ReleaseMemoryResourceRequest") -> _Called:
        session = self._sessions.get(call.session)
        return _Called(session, session.get(call.burst, Burst))

    def _executed(
        self,
        called: _Called,
        call: _Call,
        message: ExecuteRequest,
        deadline_ns: int,
        cancellation: Cancellation,
        received: Received[burst_pb2.BurstStreamRequest, _Call] | None = None,
    ) -> ExecutionResult:
        """Executes. `received`: the message of a stream that the call came in."""
        started_ns = time.perf_counter_ns()
        session, burst, config = called.session, called.burst, call.config
        if call.keeps:
            request = self._known.unknown(session, message.request)
            self._charge(called, message, request)
            return burst.execute_synchronously(
                request, call.identifiers, config, deadline_ns, cancellation, session.identity
            )
        if received is not None and call.is_named and isinstance(message, burst_pb2.BurstExecuteRequest):
            valid = self._messages.read(session, burst.prepared_model, received, config)
        else:
            valid = self._known.read(session, burst.prepared_model, message.request, config)
        return burst.execute_valid(valid, config, deadline_ns, cancellation, session.identity, started_ns)

    def _charge(self, called: _Called, call: ExecuteRequest, request: Request) -> None:
        """Counts inline bytes that the burst is going to keep as what they become: memory of the client."""
        for message, pool, identifier in zip(
            call.request.pools, request.pools, call.memory_identifier_tokens, strict=False
        ):
            is_inline = isinstance(pool, Memory) and message.pool.WhichOneof("memory") == "inline"
            if is_inline and identifier > NOT_KEPT and not called.burst.keeps(identifier):
                assert isinstance(pool, Memory)
                self._quota.charge(called.session.identity, pool.buffer)


def _failed(error: HalError) -> bytes:
    return burst_pb2.BurstStreamResponse(error=error_detail(error)).SerializeToString()


def _call(message: burst_pb2.BurstStreamRequest) -> _Call:
    """What a message of a stream is about."""
    call = getattr(message, message.WhichOneof("call") or "execute")
    if isinstance(call, burst_pb2.ReleaseMemoryResourceRequest):
        return _Call(call.session, call.burst, released=call.memory_identifier_token)
    return _execution(call)


def _execution(call: ExecuteRequest) -> _Call:
    if isinstance(call, burst_pb2.BurstExecuteRequest):
        config = ExecutionConfig(call.measure_timing, optional_ns(call, "loop_timeout_duration_ns"))
    else:
        config = wire.to_execution_config(call.config)
    identifiers = tuple(call.memory_identifier_tokens)
    keeps = identifiers != (NOT_KEPT,) * len(call.request.pools)
    return _Call(call.session, call.burst, call, config, optional_ns(call, "deadline_ns"), identifiers, keeps)


@contextmanager
def _ended_with_session(context: grpc.ServicerContext) -> Iterator[Callable[[Session], None]]:
    """Gives a function that takes the session of a stream: when that ends, the stream does too."""
    sessions: list[Session] = []

    def end(why: str) -> None:
        context.cancel()

    def take(session: Session) -> None:
        if session not in sessions:
            sessions.append(session)
            session.when_ended(end)

    try:
        yield take
    finally:
        for session in sessions:
            session.forget(end)


def _until_gone(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """The requests; they end when the client goes, with whatever gRPC raises then."""
    try:
        yield from requests
    except HalError:
        raise
    except Exception:
        if context.is_active():
            raise
