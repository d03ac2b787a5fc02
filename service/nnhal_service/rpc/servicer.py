"""Common base of the servicers that work on memory of sessions."""

from nnhal import wire
from nnhal.types import ExecutionResult
from nnhal.v1 import types_pb2
from nnhal_service.metrics.calls import CallMeter
from nnhal_service.sessions.limits import Limits
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

    def _output_writer(self, session: Session) -> OutputWriter:
        return OutputWriter(session, self._limits["inline_bytes"], self._quota)

    def _result_message(self, result: ExecutionResult, session: Session) -> types_pb2.ExecutionResult:
        return wire.result_message(result, self._output_writer(session))
