"""Detection of workers that hang: no heartbeat, or work that ignores its deadline or its cancellation."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnhal_driver.activity import Activity, Stage
from nnhal_service.supervisor.scoreboard import WorkerState, WorkerStatus

_SLOWER = 2
"""Multiple of its recent longest duration that an execution may take after its deadline: it is slow, but it ends."""


@dataclass(frozen=True, slots=True)
class HangTimeouts:
    """Times after which a worker counts as hanging.

    Attributes:
        heartbeat_ns: nanoseconds without a heartbeat.
        execution_ns: nanoseconds that an execution may go on after its deadline or its cancellation.
        preparation_ns: nanoseconds that a preparation may go on after its deadline or its cancellation.
    """

    heartbeat_ns: int
    execution_ns: int
    preparation_ns: int


@dataclass(frozen=True, slots=True)
class Hang:
    """Why a worker counts as hanging.

    Attributes:
        reason: for the log.
        activity: the work that does not end; None if there was no heartbeat.
    """

    reason: str
    activity: Activity | None = None


def find_hang(status: WorkerStatus, activities: Sequence[Activity], timeouts: HangTimeouts, now_ns: int) -> Hang | None:
    """Return why a worker counts as hanging, or None."""
    if status.state is WorkerState.EMPTY:
        return None
    silent_ns = now_ns - status.heartbeat_ns
    if silent_ns > timeouts.heartbeat_ns:
        return Hang(f"no heartbeat for {silent_ns / 1e9:.1f} s")
    for activity in activities:
        if reason := _overdue_reason(activity, timeouts, now_ns):
            return Hang(reason, activity)
    return None


def _overdue_reason(activity: Activity, timeouts: HangTimeouts, now_ns: int) -> str:
    ends = {"deadline": activity.deadline_ns, "cancellation": activity.cancelled_ns}
    known = {name: at for name, at in ends.items() if at > 0}
    if not known:
        return ""
    name = min(known, key=lambda each: known[each])
    executing = activity.stage is Stage.EXECUTING
    allowed_ns = timeouts.execution_ns if executing else timeouts.preparation_ns
    usual_ns = activity.started_ns + _SLOWER * activity.expected_ns if activity.expected_ns else 0
    if now_ns <= max(known[name], usual_ns) + allowed_ns:
        return ""
    work = "an execution" if executing else "a preparation"
    return f"{work} goes on {(now_ns - known[name]) / 1e9:.1f} s after its {name}"
