"""Execution: IExecution over the contract."""

import time

import grpc

from nnhal.v1 import execution_pb2, execution_pb2_grpc, prepared_model_pb2, types_pb2
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_service.grpc_support.call_context import call_deadline, earliest, field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.rpc.fence import launch_fenced
from nnhal_service.rpc.servicer import ServicerBase


class ExecutionServicer(ServicerBase, execution_pb2_grpc.ExecutionServicer):
    """Servicer of Execution."""

    @handler()
    def ExecuteSynchronously(
        self, request: execution_pb2.RunExecutionRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute the reusable execution, and respond when it has finished."""
        started_ns = time.perf_counter_ns()
        session = self._sessions.get(request.session, context)
        execution = session.get(request.execution, ReusableExecution)
        size = request.ByteSize()
        with self._calls.start(session, execution.prepared_model, "reusable", started_ns, size, context) as metered:
            deadline_ns = earliest(field_or_omitted(request, "deadline_ns"), call_deadline(context))
            with self._running(session, context, metered) as cancellation:
                metered.cancellation = cancellation
                result = execution.execute_synchronously(deadline_ns, cancellation, session.owner, metered)
            message = self._result_message(result, session)
            metered.note(result, message.ByteSize())
        return message

    @handler()
    def ExecuteFenced(
        self, request: execution_pb2.RunExecutionFencedRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launch the reusable execution, and respond at once."""
        session = self._sessions.get(request.session, context)
        execution = session.get(request.execution, ReusableExecution)
        size = request.ByteSize()
        metered = self._calls.start(session, execution.prepared_model, "fenced", time.perf_counter_ns(), size, context)
        return launch_fenced(session, request, execution.execute_fenced, metered, context)
