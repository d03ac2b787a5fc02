"""PreparedModel: IPreparedModel over the contract."""

import grpc

from nnhal import wire
from nnhal.errors import invalid_argument
from nnhal.run_messages import read_run
from nnhal.types import HAL_HASH, HAL_VERSION, ExecutionResult
from nnhal.v1 import device_pb2, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2
from nnhal_driver.execution.burst import Burst
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.grpc_support.call_context import field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.requests.prepared_request import PreparedRequest
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.servicer import ServicerBase, UnaryCall, execution_config
from nnhal_service.sessions.memory_quota import ARGUMENT_BYTES, DEFINED_COPIES

ExecuteOnceRequest = (
    prepared_model_pb2.ExecuteSynchronouslyRequest | prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest
)
FencedRequest = prepared_model_pb2.ExecuteFencedRequest | prepared_model_pb2.ExecuteFencedWithConfigRequest


class PreparedModelServicer(ServicerBase, prepared_model_pb2_grpc.PreparedModelServicer):
    """Servicer of PreparedModel."""

    def __init__(self, parts: ServiceParts, unread: UnreadResponses) -> None:
        super().__init__(parts)
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
        self, request: ExecuteOnceRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        """Execute a request, perhaps with hints, and respond when it has finished."""
        call = UnaryCall("unary", request.ByteSize(), context)
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)

        def execute(call: ExecutionCall) -> ExecutionResult:
            decoded = self._request(session, request.request)
            return prepared.execute_synchronously(decoded, execution_config(request), call)

        return self._execute(call, session, prepared, field_or_omitted(request, "deadline_ns"), execute)

    ExecuteSynchronouslyWithConfig = ExecuteSynchronously

    @handler()
    def Define(
        self, request: prepared_model_pb2.DefineRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.DefineResponse:
        """Define a request."""
        session = self._sessions.get(request.session, context)
        if any(pool.pool.inline for pool in request.request.pools):
            raise invalid_argument("a definition keeps no inline pools; use a ValuePool or a Memory object")
        config = wire.to_execution_config(request.config)
        defined = self._quota.count_object(
            session,
            lambda: PreparedRequest.of(session, request.target, request.request, config, self._limits),
            DEFINED_COPIES * request.ByteSize(),
        )
        handle = session.add(defined, "defined_requests")
        shapes = map(wire.output_shape_message, defined.output_shapes)
        return prepared_model_pb2.DefineResponse(definition=handle, output_shapes=shapes)

    @handler(raw=True)
    def Run(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Execute a defined request, and respond when it has finished."""
        call = UnaryCall("unary", len(request), context)
        run = read_run(request)
        response = self._run(call, self._sessions.get(run.session, context), run)
        self._unread.count(run.session, context, len(response))
        return response

    @handler()
    def ExecuteFenced(
        self, request: FencedRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launch a fenced execution, perhaps with hints, and respond at once."""
        call = MeteredCall("fenced", request.ByteSize(), context)
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)

        def execute(arguments: FencedArguments) -> FencedExecution:
            kept = self._quota.reserve_request(session, call.received)
            decoded = self._request(session, request.request)
            execution = prepared.execute_fenced(decoded, execution_config(request), arguments)
            if kept is not None:
                execution.fence.add_listener(lambda _: kept.release())
            return execution

        return self._launch_fenced(call, session, prepared, request, execute)

    ExecuteFencedWithConfig = ExecuteFenced

    @handler()
    def CreateReusableExecution(
        self, request: prepared_model_pb2.CreateReusableExecutionRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.CreateReusableExecutionResponse:
        """Create a reusable execution of a request."""
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)
        arguments = len(request.request.inputs) + len(request.request.outputs)
        execution = self._quota.count_object(
            session,
            lambda: ReusableExecution(
                prepared, self._request(session, request.request), wire.to_execution_config(request.config)
            ),
            request.ByteSize() + ARGUMENT_BYTES * arguments,
        )
        handle = session.add(execution, "reusable_executions")
        return prepared_model_pb2.CreateReusableExecutionResponse(execution=handle)

    @handler()
    def ConfigureExecutionBurst(
        self, request: prepared_model_pb2.PreparedModelRequest, context: grpc.ServicerContext
    ) -> prepared_model_pb2.ConfigureExecutionBurstResponse:
        """Create a burst."""
        session = self._sessions.get(request.session, context)
        prepared = session.get(request.prepared_model, PreparedModel)
        burst = self._quota.count_object(session, lambda: Burst(prepared, self._limits["burst_memories"]))
        return prepared_model_pb2.ConfigureExecutionBurstResponse(burst=session.add(burst, "bursts"))
