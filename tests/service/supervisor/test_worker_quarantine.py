"""Quarantine of a worker: crashes of other workers that the supervisor has not recorded yet."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from nnhal_driver.activity import ActivityTable, Stage
from nnhal_driver.quarantine import HARMLESS
from nnhal_service.quarantine import Crash
from nnhal_service.supervisor.scoreboard import NOBODY, Scoreboard, WorkerState
from nnhal_service.supervisor.worker_quarantine import WorkerQuarantine
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import has_ended

DIGEST, OTHER = b"d" * 32, b"o" * 32
ROW = 3


def execute_in(process: "subprocess.Popen[bytes]", scoreboard: Scoreboard) -> None:
    """Write the row of a worker that executes a model."""
    scoreboard.write(ROW, replace(NOBODY, pid=process.pid, state=WorkerState.SERVING))
    ActivityTable(scoreboard.activities(ROW)).begin(Stage.EXECUTING, DIGEST)


def test_model_of_a_dead_worker_waits_for_the_supervisor(tmp_path: Path) -> None:
    scoreboard = Scoreboard()
    quarantine = WorkerQuarantine(tmp_path, scoreboard)
    with subprocess.Popen(["true"]) as process, ThreadPoolExecutor(1) as threads:
        assert wait_until(lambda: has_ended(process.pid))
        execute_in(process, scoreboard)
        assert quarantine.verdict(OTHER) == quarantine.verdict(b"") == HARMLESS
        verdict = threads.submit(quarantine.verdict, DIGEST)
        quarantine.record(DIGEST, Crash("Hostile", 1e12, "killed by SIGSEGV", sure=True))
        assert not verdict.done()  # the crash is recorded, but the row not cleared
        scoreboard.clear(ROW)
        assert verdict.result(60).excluded == ("Hostile",)


def test_model_of_a_living_worker_does_not_wait(tmp_path: Path) -> None:
    scoreboard = Scoreboard()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        execute_in(process, scoreboard)
        assert WorkerQuarantine(tmp_path, scoreboard).verdict(DIGEST) == HARMLESS
