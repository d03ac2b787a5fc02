"""Parts of the service that executions need, whatever their transport."""

from dataclasses import dataclass

from nnhal.types import OMITTED
from nnhal_service.grpc_support.call_context import earliest
from nnhal_service.metrics.calls import CallMeter, MeteredCall, MeteredModel
from nnhal_service.recording.recorder import Recorder
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session
from nnhal_service.sessions.session_registry import SessionRegistry


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """Sessions with their limits and quotas, and the meter and the recorder of their calls."""

    sessions: SessionRegistry
    limits: Limits
    quota: MemoryQuota
    calls: CallMeter
    recorder: Recorder

    def begin_execution(
        self, call: MeteredCall, session: Session, model: MeteredModel, deadline_ns: int = OMITTED
    ) -> None:
        """Take the deadline of an execution, start its meter, and have it recorded or repeated if it is chosen.

        End the call as a context manager, or yourself.

        `deadline_ns` is in nanoseconds from now, or -1 for none. If the call has a deadline too, the earlier one
        counts.
        """
        call.deadline_ns = earliest(deadline_ns, call.deadline_ns)
        self.calls.start(call, session, model)
        if self.recorder.is_active:
            self.recorder.begin(call, session, model)
