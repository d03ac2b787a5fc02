"""A service whose stop hangs logs where, and exits."""

import os
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.support.service_objects import ROOT
from tests.end_to_end.support.service_process import start_service, stop_service

STUCK = "tests.service.stuck_service"


def test_hanging_worker_logs_the_stacks_and_is_killed(tmp_path: Path) -> None:
    settings = {"PYTHONPATH": str(ROOT), "NNHAL_STOP_GRACE_S": "0.1"}
    service = start_service(tmp_path, "--backends", "CpuRef", module=STUCK, **settings)
    assert stop_service(service) == 0
    assert service.logged("it did not stop in time") and service.logged("in hang")


def test_hanging_embedded_service_logs_the_stacks_and_exits() -> None:
    command = [sys.executable, "-m", STUCK, "serve", "--embedded", str(os.getpid()), "--backends", "CpuRef"]
    environment = {**os.environ, "NNHAL_STOP_GRACE_S": "0.1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("listening on ")
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Timeout (" in log and "in hang" in log
