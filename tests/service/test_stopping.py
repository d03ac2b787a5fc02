"""A service whose stop hangs says where, and ends."""

from pathlib import Path

from tests.end_to_end.conftest import start, stop
from tests.end_to_end.holdings import ROOT


def test_a_stop_that_hangs_names_the_place(tmp_path: Path) -> None:
    settings = {"PYTHONPATH": str(ROOT), "NNHAL_STOP_GRACE_S": "0.1"}
    service = start(tmp_path, "--backends", "CpuRef", module="tests.service.stuck_service", **settings)
    assert stop(service) == 1
    assert service.logged("Timeout (") and service.logged("in hang")
