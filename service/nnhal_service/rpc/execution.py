"""Execution: IExecution over the contract."""

import grpc

from nnhal.v1 import execution_pb2, execution_pb2_grpc, prepared_model_pb2, types_pb2
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_service.grpc_support.call_context import field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.rpc.servicer import ServicerBase, UnaryCall


class ExecutionServicer(ServicerBase, execution_pb2_grpc.ExecutionServicer):
    """Servicer of Execution."""

    @handler()
    def ExecuteSynchronously(
        self, request: execution_pb2.RunExecutionRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute the reusable execution, and respond when it has finished."""
        call = UnaryCall("reusable", request.ByteSize(), context)
        session = self._sessions.get(request.session, context)
        execution = session.get(request.execution, ReusableExecution)
        deadline_ns = field_or_omitted(request, "deadline_ns")
        return self._execute(call, session, execution.prepared_model, deadline_ns, execution.execute_synchronously)

    @handler()
    def ExecuteFenced(
        self, request: execution_pb2.RunExecutionFencedRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launch the reusable execution, and respond at once."""
        call = MeteredCall("fenced", request.ByteSize(), context)
        session = self._sessions.get(request.session, context)
        execution = session.get(request.execution, ReusableExecution)
        return self._launch_fenced(call, session, execution.prepared_model, request, execution.execute_fenced)
