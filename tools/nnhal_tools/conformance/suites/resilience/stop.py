"""Processes that are asked to stop (RESIL-20)."""

from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.control import STOP
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.resilience.outage import outage
from nnhal_tools.conformance.suites.resilience.executions import executing

ENDS = "RESIL-20"
PATHS = ("SYNC", "BURST", "FENCED")


@check(ENDS, exclusive=True)
def orderly_stop(target: Target, recorder: CheckRecorder) -> None:
    """Ask a process to stop during executions: they end as if it was killed, and its sessions are told why they end."""
    with outage(target, recorder, ENDS, {path: executing(path, ENDS) for path in PATHS}, STOP) as service:
        for session in service.ended:
            reason = session.closing.reason if session.closing else ""
            recorder.expect(ENDS, bool(reason), f"the last event of the session of {session.name}", "a reason", reason)
