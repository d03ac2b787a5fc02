"""Burst: IBurst over the contract, call by call or over one stream, which is answered in order."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc

from driver.burst import NOT_KEPT, Burst
from driver.cancellation import Cancellation
from nnhal import wire
from nnhal.errors import HalError, SessionLostError, invalid_argument
from nnhal.types import OMITTED, ExecutionConfig, Memory, Request
from nnhal.v1 import burst_pb2, burst_pb2_grpc, types_pb2
from service.known_requests import KnownRequests
from service.limits import Limits, MemoryQuota
from service.returning import Returning
from service.rpc import absolute_deadline, answering, error_detail, internal
from service.sessions import Session, Sessions
from service.succession import Succession

ExecuteRequest = burst_pb2.BurstExecuteRequest | burst_pb2.BurstExecuteWithConfigRequest

REFUSING_THREADS = 8
"""Of the pool for streams, beyond the limit on open ones: they answer for those that are too many."""


_PLAIN = ExecutionConfig()


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
        self._open = _Open(limits)

    @answering
    def ExecuteSynchronously(
        self, request: burst_pb2.BurstExecuteRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Runs and answers when finished."""
        result, cancellation = types_pb2.ExecutionResult(), _cancelled_by(context)
        self._execute(self._called(request), request, _plain_config(request), context, cancellation, result)
        return result

    @answering
    def ExecuteSynchronouslyWithConfig(
        self, request: burst_pb2.BurstExecuteWithConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """The same, with hints."""
        result, config = types_pb2.ExecutionResult(), wire.to_execution_config(request.config)
        self._execute(self._called(request), request, config, context, _cancelled_by(context), result)
        return result

    @answering
    def ReleaseMemoryResource(
        self, request: burst_pb2.ReleaseMemoryResourceRequest, context: grpc.ServicerContext
    ) -> burst_pb2.ReleaseMemoryResourceResponse:
        """Forgets a memory."""
        self._called(request).burst.release_memory_resource(request.memory_identifier_token)
        return burst_pb2.ReleaseMemoryResourceResponse()

    @answering
    def Stream(
        self, requests: Iterator[burst_pb2.BurstStreamRequest], context: grpc.ServicerContext
    ) -> Iterator[burst_pb2.BurstStreamResponse]:
        """The same calls, one after another. What fails answers with its error, and the stream goes on."""
        executions = Succession()
        if not context.add_callback(executions.cancel):
            executions.cancel()
        named: Any = None  # the last call that said which session and burst it is about
        with self._open.one(), _ended_with_session(context) as session_of:
            for request in _until_gone(requests, context):
                call = getattr(request, request.WhichOneof("call") or "execute")
                named = call if call.session or call.burst else named
                try:
                    if named is None:
                        raise invalid_argument("the first message of a stream names its session and burst")
                    called = self._called(named)
                    session_of(called.session)
                    answer = self._answer(called, call, context, executions.next())
                except SessionLostError:
                    raise  # nothing that comes after it could be answered
                except HalError as error:
                    answer = burst_pb2.BurstStreamResponse(error=error_detail(error))
                except Exception as error:
                    answer = burst_pb2.BurstStreamResponse(error=error_detail(internal(error)))
                yield answer

    def _answer(
        self, called: _Called, call: Any, context: grpc.ServicerContext, cancellation: Cancellation
    ) -> burst_pb2.BurstStreamResponse:
        if isinstance(call, burst_pb2.ReleaseMemoryResourceRequest):
            called.burst.release_memory_resource(call.memory_identifier_token)
            return burst_pb2.BurstStreamResponse(released=burst_pb2.ReleaseMemoryResourceResponse())
        plain = isinstance(call, burst_pb2.BurstExecuteRequest)
        config = _plain_config(call) if plain else wire.to_execution_config(call.config)
        answer = burst_pb2.BurstStreamResponse()
        self._execute(called, call, config, context, cancellation, answer.result)
        return answer

    def _called(self, call: ExecuteRequest | burst_pb2.ReleaseMemoryResourceRequest) -> _Called:
        session = self._sessions.get(call.session)
        return _Called(session, session.get(call.burst, Burst))

    def _execute(
        self,
        called: _Called,
        call: ExecuteRequest,
        config: ExecutionConfig,
        context: grpc.ServicerContext,
        cancellation: Cancellation,
        answer: types_pb2.ExecutionResult,
    ) -> None:
        """Executes, and fills the answer."""
        started_ns = time.perf_counter_ns()
        session, burst, identifiers = called.session, called.burst, call.memory_identifier_tokens
        deadline = absolute_deadline(call.deadline_ns if call.HasField("deadline_ns") else None, context)
        if list(identifiers) == [NOT_KEPT] * len(call.request.pools):
            valid = self._known.read(session, burst.prepared_model, call.request, config)
            result = burst.execute_valid(valid, config, deadline, cancellation, session.identity, started_ns)
        else:
            request = self._known.unknown(session, call.request)
            self._charge(called, call, request)
            result = burst.execute_synchronously(request, identifiers, config, deadline, cancellation, session.identity)
        wire.fill_result(answer, result, Returning(session, self._limits["inline_bytes"], self._quota))

    def _charge(self, called: _Called, call: ExecuteRequest, request: Request) -> None:
        """Counts inline bytes that the burst is going to keep as what they become: memory of the client."""
        for message, pool, identifier in zip(
            call.request.pools, request.pools, call.memory_identifier_tokens, strict=False
        ):
            is_inline = isinstance(pool, Memory) and message.pool.WhichOneof("memory") == "inline"
            if is_inline and identifier > NOT_KEPT and not called.burst.keeps(identifier):
                assert isinstance(pool, Memory)
                self._quota.charge(called.session.identity, pool.buffer)


def _plain_config(call: burst_pb2.BurstExecuteRequest) -> ExecutionConfig:
    timeout = call.loop_timeout_duration_ns if call.HasField("loop_timeout_duration_ns") else OMITTED
    return ExecutionConfig(call.measure_timing, timeout) if call.measure_timing or timeout != OMITTED else _PLAIN


def _cancelled_by(context: grpc.ServicerContext) -> Cancellation:
    """What gives up the work of a call whose client gives it up."""
    cancellation = Cancellation()
    if not context.add_callback(cancellation.cancel):
        cancellation.cancel()
    return cancellation


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


def _until_gone(
    requests: Iterator[burst_pb2.BurstStreamRequest], context: grpc.ServicerContext
) -> Iterator[burst_pb2.BurstStreamRequest]:
    """The requests; they end when the client goes, with whatever gRPC raises then."""
    try:
        yield from requests
    except HalError:
        raise
    except Exception:
        if context.is_active():
            raise
