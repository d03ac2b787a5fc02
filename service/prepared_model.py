"""PreparedModel: IPreparedModel over the contract."""

import time

import grpc

from driver.burst import Burst
from driver.cancellation import Cancellation
from driver.prepared_model import PreparedModel
from driver.reusable import ReusableExecution
from nnhal import wire
from nnhal.types import HAL_HASH, HAL_VERSION, OMITTED, ExecutionConfig
from nnhal.v1 import device_pb2, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2
from service import fence
from service.known_requests import KnownRequests
from service.limits import Limits, MemoryQuota
from service.returning import Returning
from service.rpc import absolute_deadline, answering, optional_ns
from service.sessions import Sessions

ExecuteRequest = (
    prepared_model_pb2.ExecuteSynchronouslyRequest | prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest
)

FencedRequest = prepared_model_pb2.ExecuteFencedRequest | prepared_model_pb2.ExecuteFencedWithConfigRequest


class PreparedModelServicer(prepared_model_pb2_grpc.PreparedModelServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, limits: Limits, quota: MemoryQuota) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota
        self._known = KnownRequests(limits)

    @answering
    def GetInterfaceVersion(
        self, request: prepared_model_pb2.PreparedModelRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetInterfaceVersionResponse:
        """Version 4 and its hash."""
        self._sessions.get(request.session).get(request.prepared_model, PreparedModel)
        return device_pb2.GetInterfaceVersionResponse(version=HAL_VERSION, hash=HAL_HASH)

    @answering
    def ExecuteSynchronously(
        self, request: prepared_model_pb2.ExecuteSynchronouslyRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Runs and answers when finished."""
        timeout = request.loop_timeout_duration_ns if request.HasField("loop_timeout_duration_ns") else OMITTED
        return self._execute(request, ExecutionConfig(request.measure_timing, timeout), context)

    @answering
    def ExecuteSynchronouslyWithConfig(
        self, request: prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """The same, with hints."""
        return self._execute(request, wire.to_execution_config(request.config), context)

    def _execute(
        self, request: ExecuteRequest, config: ExecutionConfig, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        started_ns = time.perf_counter_ns()
        session = self._sessions.get(request.session)
        prepared = session.get(request.prepared_model, PreparedModel)
        arguments = self._known.read(session, prepared, request.request, config)
        deadline = absolute_deadline(request.deadline_ns if request.HasField("deadline_ns") else None, context)
        cancellation = Cancellation()
        context.add_callback(cancellation.cancel)
        result = prepared.execute_valid(arguments, config, deadline, cancellation, session.identity, started_ns)
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
