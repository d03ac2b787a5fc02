"""Execution: IExecution over the contract."""

import grpc

from driver.reusable import ReusableExecution
from nnhal import wire
from nnhal.v1 import execution_pb2, execution_pb2_grpc, prepared_model_pb2, types_pb2
from service import fence
from service.limits import Limits, MemoryQuota
from service.returning import Returning
from service.rpc import answering, call_deadline, cancelled_by, earlier, optional_ns
from service.sessions import Sessions


class ExecutionServicer(execution_pb2_grpc.ExecutionServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, limits: Limits, quota: MemoryQuota) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota

    @answering
    def ExecuteSynchronously(
        self, request: execution_pb2.RunExecutionRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Runs and answers when finished."""
        session = self._sessions.get(request.session)
        execution = session.get(request.execution, ReusableExecution)
        deadline_ns = earlier(optional_ns(request, "deadline_ns"), call_deadline(context))
        result = execution.execute_synchronously(deadline_ns, cancelled_by(context), session.identity)
        return wire.result_message(result, Returning(session, self._limits["inline_bytes"], self._quota))

    @answering
    def ExecuteFenced(
        self, request: execution_pb2.RunExecutionFencedRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launches and answers at once."""
        session = self._sessions.get(request.session)
        execution = session.get(request.execution, ReusableExecution)
        return fence.launch(session, request, execution.execute_fenced)
