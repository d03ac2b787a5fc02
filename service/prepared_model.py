"""PreparedModel: IPreparedModel over the contract."""

import grpc

from driver.cancellation import Cancellation
from driver.prepared_model import PreparedModel
from nnhal import wire
from nnhal.types import HAL_HASH, HAL_VERSION, OMITTED, Bytes, ExecutionConfig
from nnhal.v1 import device_pb2, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2
from service.limits import Limits, MemoryQuota
from service.memory import MemoryObject, read_memory
from service.rpc import absolute_deadline, answering
from service.sessions import Session, Sessions

ExecuteRequest = (
    prepared_model_pb2.ExecuteSynchronouslyRequest | prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest
)


class PreparedModelServicer(prepared_model_pb2_grpc.PreparedModelServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, limits: Limits, quota: MemoryQuota) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota

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
        session = self._sessions.get(request.session)
        prepared = session.get(request.prepared_model, PreparedModel)
        self._limits.hold_request(request.request)
        arguments = wire.to_request(request.request, lambda pool: read_memory(session, pool))
        deadline = absolute_deadline(request.deadline_ns if request.HasField("deadline_ns") else None, context)
        cancellation = Cancellation()
        context.add_callback(cancellation.cancel)
        result = prepared.execute_synchronously(arguments, config, deadline, cancellation)
        return wire.result_message(result, _Returning(session, self._limits["inline_bytes"], self._quota))


class _Returning:
    """Makes the messages of returned outputs: inline while they fit into one message, then as Memory objects."""

    def __init__(self, session: Session, room: int, quota: MemoryQuota) -> None:
        self._session = session
        self._room = room
        self._quota = quota

    def __call__(self, data: Bytes) -> types_pb2.ReturnedOutput:
        if data.size <= self._room:
            self._room -= data.size
            return wire.inline_output(data)
        self._quota.charge(self._session.identity, data)
        return types_pb2.ReturnedOutput(memory=self._session.add(MemoryObject(data)))
