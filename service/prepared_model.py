"""PreparedModel: IPreparedModel over the contract."""

import time
from typing import NamedTuple

import grpc

from driver.burst import Burst
from driver.prepared_model import PreparedModel
from driver.reusable import ReusableExecution
from nnhal import wire
from nnhal.types import HAL_HASH, HAL_VERSION, ExecutionConfig
from nnhal.v1 import device_pb2, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2
from service import fence
from service.decoding import in_bytes
from service.known_answers import KnownAnswers
from service.known_messages import KnownMessages
from service.known_requests import KnownRequests
from service.limits import Limits, MemoryQuota
from service.returning import Returning
from service.rpc import answering, call_deadline, cancelled_by, earlier, optional_ns
from service.sessions import Sessions

FencedRequest = prepared_model_pb2.ExecuteFencedRequest | prepared_model_pb2.ExecuteFencedWithConfigRequest


class _Call(NamedTuple):
    """What a message of ExecuteSynchronously is about."""

    session: bytes
    prepared_model: bytes
    config: ExecutionConfig
    deadline_ns: int


def _call(message: prepared_model_pb2.ExecuteSynchronouslyRequest) -> _Call:
    config = ExecutionConfig(message.measure_timing, optional_ns(message, "loop_timeout_duration_ns"))
    return _Call(message.session, message.prepared_model, config, optional_ns(message, "deadline_ns"))


class PreparedModelServicer(prepared_model_pb2_grpc.PreparedModelServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, limits: Limits, quota: MemoryQuota) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota
        self._known = KnownRequests(limits)
        kind = prepared_model_pb2.ExecuteSynchronouslyRequest
        self._messages = KnownMessages(self._known, kind, lambda one: one.request, _call)
        self._answers = KnownAnswers(types_pb2.ExecutionResult, lambda one: one, limits, quota)

    @answering
    def GetInterfaceVersion(
        self, request: prepared_model_pb2.PreparedModelRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetInterfaceVersionResponse:
        """Version 4 and its hash."""
        self._sessions.get(request.session).get(request.prepared_model, PreparedModel)
        return device_pb2.GetInterfaceVersionResponse(version=HAL_VERSION, hash=HAL_HASH)

    @in_bytes
    @answering
    def ExecuteSynchronously(self, request: bytes, context: grpc.ServicerContext) -> bytes:  # type: ignore[override]
        """Runs and answers when finished."""
        started_ns = time.perf_counter_ns()
        received = self._messages.decode(request)
        call = received.call
        session = self._sessions.get(call.session)
        prepared = session.get(call.prepared_model, PreparedModel)
        arguments = self._messages.read(session, prepared, received, call.config)
        deadline_ns = earlier(call.deadline_ns, call_deadline(context))
        owner, cancellation = session.identity, cancelled_by(context)
        result = prepared.execute_valid(arguments, call.config, deadline_ns, cancellation, owner, started_ns)
        return self._answers.encode(result, prepared, session)

    @answering
    def ExecuteSynchronouslyWithConfig(
        self, request: prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """The same, with hints."""
        started_ns = time.perf_counter_ns()
        session = self._sessions.get(request.session)
        prepared = session.get(request.prepared_model, PreparedModel)
        config = wire.to_execution_config(request.config)
        arguments = self._known.read(session, prepared, request.request, config)
        deadline_ns = earlier(optional_ns(request, "deadline_ns"), call_deadline(context))
        owner, cancellation = session.identity, cancelled_by(context)
        result = prepared.execute_valid(arguments, config, deadline_ns, cancellation, owner, started_ns)
        return wire.result_message(result, Returning(session, self._limits["inline_bytes"], self._quota))

    @answering
    def ExecuteFenced(
        self, request: prepared_model_pb2.ExecuteFencedRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launches and answers at once."""
        timeout = optional_ns(request, "loop_timeout_duration_ns")
        return self._launch(request, ExecutionConfig(request.measure_timing, timeout))

    @answering
    def ExecuteFencedWithConfig(
        self, request: prepared_model_pb2.ExecuteFencedWithConfigRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """The same, with hints."""
        return self._launch(request, wire.to_execution_config(request.config))

    def _launch(self, request: FencedRequest, config: ExecutionConfig) -> prepared_model_pb2.FencedExecutionResult:
        session = self._sessions.get(request.session)
        prepared = session.get(request.prepared_model, PreparedModel)
        arguments = self._known.unknown(session, request.request)
        return fence.launch(session, request, lambda how: prepared.execute_fenced(arguments, config, how))

    @answering
    def CreateReusableExecution(
        self, request: prepared_model_pb2.CreateReusableExecutionRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.CreateReusableExecutionResponse:
        """Freezes a request."""
        session = self._sessions.get(request.session)
        prepared = session.get(request.prepared_model, PreparedModel)
        arguments = self._known.unknown(session, request.request)
        execution = ReusableExecution(prepared, arguments, wire.to_execution_config(request.config))
        handle = session.add(execution, "reusable_executions")
        return prepared_model_pb2.CreateReusableExecutionResponse(execution=handle)

    @answering
    def ConfigureExecutionBurst(
        self, request: prepared_model_pb2.PreparedModelRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.ConfigureExecutionBurstResponse:
        """Makes a burst."""
        session = self._sessions.get(request.session)
        burst = Burst(session.get(request.prepared_model, PreparedModel), self._limits["burst_memories"])
        return prepared_model_pb2.ConfigureExecutionBurstResponse(burst=session.add(burst, "bursts"))
