"""Common base of the servicers that work on memory of sessions."""

import time

import grpc

from nnhal import wire
from nnhal.run_messages import encode_values
from nnhal.types import ExecutionResult, Request
from nnhal.v1 import burst_pb2, prepared_model_pb2, types_pb2
from nnhal_driver.execution.profiling import later_stage
from nnhal_service.grpc_support.call_context import SessionCall
from nnhal_service.metrics.calls import CallMeter, MeteredCall
from nnhal_service.requests.prepared_request import PreparedRequest
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import read_memory
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.output_writer import OutputWriter
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry


class ServicerBase:
    """Servicer with sessions, limits, quotas and a meter."""

    def __init__(self, sessions: SessionRegistry, limits: Limits, quota: MemoryQuota, calls: CallMeter) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota
        self._calls = calls

    def _request(self, session: Session, message: types_pb2.Request) -> Request:
        """Return the request of a message, checked against the limits only.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle.
        """
        self._limits.require_request(message)
        return wire.to_request(message, lambda pool: read_memory(session, pool))

    def _running(self, session: Session, context: grpc.ServicerContext, metered: MeteredCall) -> SessionCall:
        """Return the context in which a call executes, with its cancellation.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit service_memory_bytes: its request is too large.
        """
        return SessionCall(session, context, self._quota.reserve_request(session, metered.received))

    def _output_writer(self, session: Session) -> OutputWriter:
        return OutputWriter(session, self._limits["inline_bytes"], self._quota)

    def _result_message(
        self, result: ExecutionResult, session: Session, started_ns: int | None = None
    ) -> types_pb2.ExecutionResult:
        """Return the message of a result; `started_ns` adds the stage of its encoding to the spans."""
        executed_ns = time.perf_counter_ns()
        message = wire.result_message(result, self._output_writer(session))
        if result.spans and started_ns is not None:
            message.spans.append(wire.span_message(later_stage("encode", result, started_ns, executed_ns)))
        return message

    def _encode_run(
        self,
        defined: PreparedRequest,
        result: ExecutionResult,
        session: Session,
        started_ns: int,
        *,
        stream: bool = False,
    ) -> bytes:
        """Return the encoded response to a run; on a stream, as a part of the stream's response."""
        values = defined.returned_values(result, self._limits["inline_bytes"])
        if values is not None:
            return encode_values(values, stream=stream)
        response = prepared_model_pb2.RunResponse(result=self._result_message(result, session, started_ns))
        return (burst_pb2.BurstStreamResponse(ran=response) if stream else response).SerializeToString()
