"""Common base of the servicers that work on memory of sessions, and the execution of models for their calls."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import grpc

from nnhal import wire
from nnhal.run_messages import RunCall, encode_values
from nnhal.types import ExecutionConfig, ExecutionResult, Request
from nnhal.v1 import burst_pb2, prepared_model_pb2, types_pb2
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.profiling import later_stage
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_service.grpc_support.call_context import SessionCall, call_deadline, cancellation_of, field_or_omitted
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.requests.prepared_request import PreparedRequest, find_model
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.fence import LaunchRequest, SessionFence, launch_fenced
from nnhal_service.sessions.memory_objects import read_memory
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.output_writer import OutputWriter
from nnhal_service.sessions.session import Session

_FENCED_BYTES, _WAIT_BYTES = 2**13, 2**8
"""Memory of a fenced execution with a small request, and of each fence that it waits for."""
_SMALL = nullcontext()
"""Context of messages that are too small to count."""


class GrpcCall(MeteredCall):
    """Execution that a client requests over gRPC.

    Attributes:
        is_stream: whether its response is a part of that of a stream.
    """

    is_stream = False

    def running(self, session: Session, quota: MemoryQuota) -> AbstractContextManager[object]:
        """Return the context in which it runs. Its request counts as memory of the session meanwhile.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes.
        """
        return quota.reserve_request(session, self.received) or _SMALL


class UnaryCall(GrpcCall):
    """Execution on the thread of a gRPC call. It is cancelled with its call, and with its session."""

    context: grpc.ServicerContext

    def __init__(self, path: str, received: int, context: grpc.ServicerContext) -> None:
        super().__init__(path, received, context, call_deadline(context), cancellation_of(context))

    def running(self, session: Session, quota: MemoryQuota) -> AbstractContextManager[object]:
        """Return the context in which it runs. It also counts against `session_calls`."""
        return SessionCall(session, self.context, self.cancellation, quota.reserve_request(session, self.received))


def execution_config(request: Any) -> ExecutionConfig:
    """Return the options in a request to execute, which has a message of them, or two of them as fields."""
    if hasattr(request, "config"):
        return wire.to_execution_config(request.config)
    return ExecutionConfig(request.measure_timing, field_or_omitted(request, "loop_timeout_duration_ns"))


class ServicerBase:
    """Servicer with the parts of the service that executions need."""

    def __init__(self, parts: ServiceParts) -> None:
        self._parts = parts
        self._sessions = parts.sessions
        self._limits = parts.limits
        self._quota = parts.quota
        self._calls = parts.calls

    def _patience_s(self, deadline: Deadline) -> float:
        """Return the seconds that a call with a deadline may wait for a model to be loaded."""
        longest = float(self._limits["preparation_seconds"])
        remaining_s = deadline.remaining_s()
        return longest if remaining_s is None else min(longest, remaining_s)

    def _request(self, session: Session, message: types_pb2.Request) -> Request:
        """Return the request of a message, checked against the limits only. Many arguments count while it exists."""
        self._limits.require_request(message)
        reservation = self._quota.reserve_arguments(session, message)
        request = wire.to_request(message, lambda pool: read_memory(session, pool))
        if reservation is not None:
            reservation.keep_for(request)
        return request

    def _output_writer(self, session: Session) -> OutputWriter:
        return OutputWriter(session, self._limits["inline_bytes"], self._quota)

    def _execute(
        self,
        call: GrpcCall,
        session: Session,
        prepared: PreparedModel,
        deadline_ns: int,
        execute: Callable[[ExecutionCall], ExecutionResult],
    ) -> types_pb2.ExecutionResult:
        """Execute a request that is not defined, and return the message of its result."""
        self._parts.begin_execution(call, session, prepared, deadline_ns)
        with call, call.running(session, self._quota):
            result = execute(call)
            message = self._result_message(result, session, call)
            call.note(result, message.ByteSize())
        return message

    def _run(self, call: GrpcCall, session: Session, run: RunCall) -> bytes:
        """Execute a defined request, and return the encoded response."""
        defined = session.get(run.definition, PreparedRequest)
        prepared, use = find_model(session, defined.target)
        self._parts.begin_execution(call, session, prepared, run.deadline_ns)
        with call, call.running(session, self._quota), use:
            result = defined.execute(prepared, run.values, call)
            response = self._encode_run(defined, result, session, call)
            call.note(result, len(response))
        return response

    def _launch_fenced(
        self,
        call: MeteredCall,
        session: Session,
        prepared: PreparedModel,
        request: LaunchRequest,
        execute: Callable[[FencedArguments], FencedExecution],
    ) -> prepared_model_pb2.FencedExecutionResult:
        """Launch a fenced execution, and return the message with its fence."""
        fence = self._quota.count_object(session, SessionFence, _FENCED_BYTES + _WAIT_BYTES * len(request.wait_for))
        self._parts.begin_execution(call, session, prepared, field_or_omitted(request, "deadline_ns"))
        return launch_fenced(call, session, fence, request, execute)

    def _result_message(
        self, result: ExecutionResult, session: Session, call: ExecutionCall
    ) -> types_pb2.ExecutionResult:
        """Return the message of a result. If it has spans, the stage of its encoding is one of them."""
        executed_ns = time.perf_counter_ns()
        message = wire.result_message(result, self._output_writer(session))
        if result.spans:
            message.spans.append(wire.span_message(later_stage("encode", result, call.received_ns, executed_ns)))
        return message

    def _encode_run(self, defined: PreparedRequest, result: ExecutionResult, session: Session, call: GrpcCall) -> bytes:
        """Return the encoded response to a run; on a stream, as a part of the stream's response."""
        values = defined.returned_values(result, self._limits["inline_bytes"])
        if values is not None:
            return encode_values(values, stream=call.is_stream)
        response = prepared_model_pb2.RunResponse(result=self._result_message(result, session, call))
        return (burst_pb2.BurstStreamResponse(ran=response) if call.is_stream else response).SerializeToString()
