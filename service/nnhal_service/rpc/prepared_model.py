"""PreparedModel: IPreparedModel over the contract."""

import time

import grpc

from nnhal import wire
from nnhal.errors import invalid_argument
from nnhal.run_messages import read_run
from nnhal.types import HAL_HASH, HAL_VERSION, ExecutionConfig
from nnhal.v1 import device_pb2, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2
from nnhal_driver.execution.burst import Burst
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.grpc_support.call_context import call_deadline, earliest, field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.metrics.calls import CallMeter
from nnhal_service.requests.prepared_request import PreparedRequest, find_model
from nnhal_service.rpc.fence import launch_fenced
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session_registry import SessionRegistry

ExecuteRequest = (
    prepared_model_pb2.ExecuteSynchronouslyRequest | prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest
)
FencedRequest = prepared_model_pb2.ExecuteFencedRequest | prepared_model_pb2.ExecuteFencedWithConfigRequest


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

    @handler()
    def GetInterfaceVersion(
        self, request: prepared_model_pb2.PreparedModelRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetInterfaceVersionResponse:
        """Return version and hash of the HAL interface."""
        self._sessions.get(request.session, context).get(request.prepared_model, PreparedModel)
        return device_pb2.GetInterfaceVersionResponse(version=HAL_VERSION, hash=HAL_HASH)

    @handler()
    def ExecuteSynchronously(
        self, request: prepared_model_pb2.ExecuteSynchronouslyRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute a request, and respond when it has finished."""
        timeout = field_or_omitted(request, "loop_timeout_duration_ns")
        return self._execute(request, ExecutionConfig(request.measure_timing, timeout), context)

    @handler()
    def ExecuteSynchronouslyWithConfig(
        self, request: prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute a request with hints, and respond when it has finished."""
        return self._execute(request, wire.to_execution_config(request.config), context)

    def _execute(
        self, request: ExecuteRequest, config: ExecutionConfig, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        started_ns = time.perf_counter_ns()
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)
        with self._calls.start(session, prepared, "unary", started_ns, request.ByteSize(), context) as metered:
            valid = prepared.validate_execution(self._request(session, request.request), config)
            deadline_ns = earliest(field_or_omitted(request, "deadline_ns"), call_deadline(context))
            with self._running(session, context, metered) as cancellation:
                metered.cancellation = cancellation
                result = prepared.execute_valid(
                    valid, config, deadline_ns, cancellation, session.owner, started_ns, metered
                )
            message = self._result_message(result, session, started_ns)
            metered.note(result, message.ByteSize())
        return message

    @handler()
    def Define(
        self, request: prepared_model_pb2.DefineRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.DefineResponse:
        """Define a request."""
        session = self._sessions.get(request.session, context)
        if any(pool.pool.inline for pool in request.request.pools):
            raise invalid_argument("a definition keeps no inline pools; use a ValuePool or a Memory object")
        config = wire.to_execution_config(request.config)
        defined = PreparedRequest.of(session, request.target, request.request, config, self._limits)
        handle = session.add(defined, "defined_requests")
        shapes = map(wire.output_shape_message, defined.output_shapes)
        return prepared_model_pb2.DefineResponse(definition=handle, output_shapes=shapes)

    @handler(raw=True)
    def Run(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Execute a defined request, and respond when it has finished."""
        started_ns = time.perf_counter_ns()
        call = read_run(request)
        session = self._sessions.get(call.session, context)
        defined = session.get(call.definition, PreparedRequest)
        prepared, use = find_model(session, defined.target)
        with self._calls.start(session, prepared, "unary", started_ns, len(request), context) as metered:
            deadline_ns = earliest(call.deadline_ns, call_deadline(context))
            with self._running(session, context, metered) as metered.cancellation, use:
                result = defined.execute(prepared, session, call.values, deadline_ns, started_ns, metered)
            response = self._encode_run(defined, result, session, started_ns)
            metered.note(result, len(response))
            self._unread.count(call.session, context, len(response))
        return response

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
            kept = self._quota.reserve_request(session, metered.received)
            execution = prepared.execute_fenced(self._request(session, request.request), config, arguments)
            if kept is not None:
                execution.fence.add_listener(lambda _: kept.release())
            return execution

        return launch_fenced(session, request, execute, metered, context)

    @handler()
    def CreateReusableExecution(
        self, request: prepared_model_pb2.CreateReusableExecutionRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.CreateReusableExecutionResponse:
        """Create a reusable execution of a request."""
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)
        decoded = self._request(session, request.request)
        execution = ReusableExecution(prepared, decoded, wire.to_execution_config(request.config))
        if (kept := self._quota.reserve_request(session, request.ByteSize(), copies=1)) is not None:
            kept.keep_for(execution)
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
