"""Processes that are asked to stop (RESIL-20)."""

from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.control import STOP
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.resilience.outage import outage
from nnhal_tools.conformance.suites.resilience.executions import executing, executing_endlessly

ENDS = "RESIL-20"
SECONDS_NS = 2_000_000_000

PATHS = ("SYNC", "BURST", "BURST-STREAM", "FENCED")


@check(ENDS, exclusive=True)
def orderly_stop(target: Target, recorder: CheckRecorder) -> None:
    """Ask a process to stop during executions: they end as if it was killed, and its sessions are told why they end.

    A loop of some seconds has its grace time. gRPC may cancel calls that come while the process stops.
    """
    works = {"SYNC, an endless loop": executing_endlessly("SYNC", ENDS, SECONDS_NS)}
    works |= {path: executing(path, ENDS) for path in PATHS}
    with outage(target, recorder, ENDS, works, STOP) as service:
        for session in service.ended:
            reason = session.closing.reason if session.closing else ""
            recorder.expect(bool(reason), f"the last event of the session of {session.name}", "a reason", reason)
