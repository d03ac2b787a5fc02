"""A service whose stop hangs logs where, and exits."""

from pathlib import Path

from tests.end_to_end.support.service_objects import ROOT
from tests.end_to_end.support.service_process import start_service, stop_service


def test_hanging_stop_logs_the_stacks(tmp_path: Path) -> None:
    settings = {"PYTHONPATH": str(ROOT), "NNHAL_STOP_GRACE_S": "0.1"}
    service = start_service(tmp_path, "--backends", "CpuRef", module="tests.service.stuck_service", **settings)
    assert stop_service(service) == 1
    assert service.logged("Timeout (") and service.logged("in hang")
