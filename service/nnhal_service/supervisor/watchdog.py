"""Detection of workers that hang: no heartbeat, or work that ignores its deadline or its cancellation."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnhal_driver.activity import Activity, Stage
from nnhal_service.supervisor.scoreboard import WorkerState, WorkerStatus

_EXECUTION_NS, _PREPARATION_NS = 10**9, 30 * 10**9
"""Nanoseconds that work may go on after its deadline or its cancellation."""
_SLOWER = 2
"""Multiple of its recent longest duration that an execution may take after its deadline: it is slow, but it ends."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Why a worker counts as hanging.

    Attributes:
        activity: the work that does not end; None if there was no heartbeat.
    """

    reason: str
    activity: Activity | None = None


def find_hang(status: WorkerStatus, activities: Sequence[Activity], heartbeat_ns: int, now_ns: int) -> Hang | None:
    """Return why a worker counts as hanging, given its report on itself and its work in progress; or None.

    `heartbeat_ns` is the time without a heartbeat that is allowed; `now_ns` an instant of CLOCK_BOOTTIME.
    """
    if status.state is WorkerState.EMPTY:
        return None
    silent_ns = now_ns - status.heartbeat_ns
    if silent_ns > heartbeat_ns:
        return Hang(f"no heartbeat for {silent_ns / 1e9:.1f} s")
    for activity in activities:
        if reason := _overdue_reason(activity, now_ns):
            return Hang(reason, activity)
    return None


def _overdue_reason(activity: Activity, now_ns: int) -> str:
    ends = {"deadline": activity.deadline_ns, "cancellation": activity.cancelled_ns}
    known = {name: at for name, at in ends.items() if at > 0}
    if not known:
        return ""
    name = min(known, key=lambda each: known[each])
    executing = activity.stage is Stage.EXECUTING
    allowed_ns = _EXECUTION_NS if executing else _PREPARATION_NS
    usual_ns = activity.started_ns + _SLOWER * activity.expected_ns if activity.expected_ns else 0
    if now_ns <= max(known[name], usual_ns) + allowed_ns:
        return ""
    work = "an execution" if executing else "a preparation"
    return f"{work} goes on {(now_ns - known[name]) / 1e9:.1f} s after its {name}"
