"""PreparedModel: IPreparedModel over the contract."""

import time
from typing import NamedTuple

import grpc

from nnhal import wire
from nnhal.types import HAL_HASH, HAL_VERSION, ExecutionConfig
from nnhal.v1 import device_pb2, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2
from nnhal_driver.execution.burst import Burst
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.profiling import later_stage
from nnhal_service.grpc_support.call_context import SessionCall, call_deadline, earliest, field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.message_caches.decoded_request_cache import DecodedRequestCache
from nnhal_service.message_caches.response_template_cache import ResponseTemplateCache
from nnhal_service.message_caches.validated_request_cache import ValidatedRequestCache
from nnhal_service.metrics.calls import CallMeter
from nnhal_service.rpc.fence import launch_fenced
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session_registry import SessionRegistry

FencedRequest = prepared_model_pb2.ExecuteFencedRequest | prepared_model_pb2.ExecuteFencedWithConfigRequest


class _ExecuteCall(NamedTuple):
    """The fields of an ExecuteSynchronouslyRequest besides its request."""

    session: bytes
    prepared_model: bytes
    config: ExecutionConfig
    deadline_ns: int


def _describe(message: prepared_model_pb2.ExecuteSynchronouslyRequest) -> _ExecuteCall:
    config = ExecutionConfig(message.measure_timing, field_or_omitted(message, "loop_timeout_duration_ns"))
    return _ExecuteCall(message.session, message.prepared_model, config, field_or_omitted(message, "deadline_ns"))


class PreparedModelServicer(ServicerBase, prepared_model_pb2_grpc.PreparedModelServicer):
    """Servicer of PreparedModel."""

    def __init__(
        self,
        sessions: SessionRegistry,
        limits: Limits,
        quota: MemoryQuota,
        unread: UnreadResponses,
        calls: CallMeter,
    ) -> None:
        super().__init__(sessions, limits, quota, calls)
        self._unread = unread
        self._requests = ValidatedRequestCache(limits)
        message_type = prepared_model_pb2.ExecuteSynchronouslyRequest
        self._messages = DecodedRequestCache(self._requests, message_type, lambda message: message.request, _describe)
        self._responses = ResponseTemplateCache(types_pb2.ExecutionResult, lambda result: result, limits, quota)

    @handler()
    def GetInterfaceVersion(
        self, request: prepared_model_pb2.PreparedModelRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetInterfaceVersionResponse:
        """Return version and hash of the HAL interface."""
        self._sessions.get(request.session, context).get(request.prepared_model, PreparedModel)
        return device_pb2.GetInterfaceVersionResponse(version=HAL_VERSION, hash=HAL_HASH)

    @handler(raw=True)
    def ExecuteSynchronously(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Execute a request, and respond when it has finished."""
        started_ns = time.perf_counter_ns()
        received = self._messages.decode(request)
        call = received.call
        session = self._sessions.get(call.session, context)
        prepared = session.get(call.prepared_model, PreparedModel)
        with self._calls.start(session, prepared, "unary", started_ns, len(request), context) as metered:
            valid = self._messages.validate(session, prepared, received, call.config)
            deadline_ns = earliest(call.deadline_ns, call_deadline(context))
            with SessionCall(session, context) as cancellation:
                metered.cancellation = cancellation
                result = prepared.execute_valid(
                    valid, call.config, deadline_ns, cancellation, session.owner, started_ns, metered
                )
            response = self._responses.encode(result, prepared, session)
            metered.note(result, len(response))
            self._unread.count(call.session, context, len(response))
        return response

    @handler()
    def ExecuteSynchronouslyWithConfig(
        self, request: prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute a request with hints, and respond when it has finished."""
        started_ns = time.perf_counter_ns()
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)
        with self._calls.start(session, prepared, "unary", started_ns, request.ByteSize(), context) as metered:
            config = wire.to_execution_config(request.config)
            valid = self._requests.validate(session, prepared, request.request, config)
            deadline_ns = earliest(field_or_omitted(request, "deadline_ns"), call_deadline(context))
            with SessionCall(session, context) as cancellation:
                metered.cancellation = cancellation
                result = prepared.execute_valid(
                    valid, config, deadline_ns, cancellation, session.owner, started_ns, metered
                )
            executed_ns = time.perf_counter_ns()
            message = self._result_message(result, session)
            if result.spans:
                message.spans.append(wire.span_message(later_stage("encode", result, started_ns, executed_ns)))
            metered.note(result, message.ByteSize())
        return message

    @handler()
    def ExecuteFenced(
        self, request: prepared_model_pb2.ExecuteFencedRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launch a fenced execution, and respond at once."""
        timeout = field_or_omitted(request, "loop_timeout_duration_ns")
        return self._launch(request, ExecutionConfig(request.measure_timing, timeout), context)

    @handler()
    def ExecuteFencedWithConfig(
        self, request: prepared_model_pb2.ExecuteFencedWithConfigRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launch a fenced execution with hints, and respond at once."""
        return self._launch(request, wire.to_execution_config(request.config), context)

    def _launch(
        self, request: FencedRequest, config: ExecutionConfig, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)
        metered = self._calls.start(session, prepared, "fenced", time.perf_counter_ns(), request.ByteSize(), context)

        def execute(arguments: FencedArguments) -> FencedExecution:
            return prepared.execute_fenced(self._requests.decode(session, request.request), config, arguments)

        return launch_fenced(session, request, execute, metered, context)

    @handler()
    def CreateReusableExecution(
        self, request: prepared_model_pb2.CreateReusableExecutionRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.CreateReusableExecutionResponse:
        """Create a reusable execution of a request."""
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)
        decoded = self._requests.decode(session, request.request)
        execution = ReusableExecution(prepared, decoded, wire.to_execution_config(request.config))
        handle = session.add(execution, "reusable_executions")
        return prepared_model_pb2.CreateReusableExecutionResponse(execution=handle)

    @handler()
    def ConfigureExecutionBurst(
        self, request: prepared_model_pb2.PreparedModelRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.ConfigureExecutionBurstResponse:
        """Create a burst."""
        session = self._sessions.get(request.session, context)
        burst = Burst(session.get(request.prepared_model, PreparedModel), self._limits["burst_memories"])
        return prepared_model_pb2.ConfigureExecutionBurstResponse(burst=session.add(burst, "bursts"))
