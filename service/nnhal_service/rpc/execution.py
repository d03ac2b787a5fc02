"""Execution: IExecution over the contract."""

import grpc

from nnhal import wire
from nnhal.v1 import execution_pb2, execution_pb2_grpc, prepared_model_pb2, types_pb2
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_service.grpc_support.call_context import call_deadline, cancellation_of, earliest, field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.rpc.fence import launch_fenced
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.output_writer import OutputWriter
from nnhal_service.sessions.session_registry import SessionRegistry


class ExecutionServicer(execution_pb2_grpc.ExecutionServicer):
    """Servicer of Execution."""

    def __init__(self, sessions: SessionRegistry, limits: Limits, quota: MemoryQuota) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota

    @handler()
    def ExecuteSynchronously(
        self, request: execution_pb2.RunExecutionRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute the reusable execution, and respond when it has finished."""
        session = self._sessions.get(request.session)
        execution = session.get(request.execution, ReusableExecution)
        deadline_ns = earliest(field_or_omitted(request, "deadline_ns"), call_deadline(context))
        result = execution.execute_synchronously(deadline_ns, cancellation_of(context), session.identity)
        return wire.result_message(result, OutputWriter(session, self._limits["inline_bytes"], self._quota))

    @handler()
    def ExecuteFenced(
        self, request: execution_pb2.RunExecutionFencedRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launch the reusable execution, and respond at once."""
        session = self._sessions.get(request.session)
        execution = session.get(request.execution, ReusableExecution)
        return launch_fenced(session, request, execution.execute_fenced)
