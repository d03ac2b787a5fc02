"""Parts of the service that executions need, whatever their transport."""

from dataclasses import dataclass

from nnhal.types import OMITTED
from nnhal_service.grpc_support.call_context import earliest
from nnhal_service.metrics.calls import CallMeter, MeteredCall, MeteredModel
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """Sessions with their limits and quotas, and the meter of their calls."""

    sessions: SessionRegistry
    limits: Limits
    quota: MemoryQuota
    calls: CallMeter

    def begin_execution(
        self, call: MeteredCall, session: Session, model: MeteredModel, deadline_ns: int = OMITTED
    ) -> None:
        """Take the deadline of an execution, and start its meter. End the call as a context manager, or yourself.

        Args:
            call: the call; if it has a deadline, the earlier one counts.
            session: of the client.
            model: the model that it executes.
            deadline_ns: deadline in the request, in nanoseconds from now; -1: none.
        """
        call.deadline_ns = earliest(deadline_ns, call.deadline_ns)
        self.calls.start(call, session, model)
