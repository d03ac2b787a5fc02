"""GPUs that run out of memory, and that are lost, and races of the engine: each in a process of its own."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.driver.backends.gpu import first_models
from tests.driver.backends.gpu.software_gpu import require_software_gpu


def run(module: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    require_software_gpu()
    command = [sys.executable, "-m", f"tests.driver.backends.gpu.{module}", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_first_models_share_the_gpu() -> None:
    done = run("first_models")
    assert f"right {first_models.COUNT}" in done.stdout.splitlines(), done.stdout + done.stderr


def test_full_gpu_recovers_and_lost_one_ends_a_supervised_process(tmp_path: Path) -> None:
    done = run("failing_gpu", tmp_path)
    names = ("large", "small", "lost", "supervised")
    assert [line for line in done.stdout.splitlines() if line.startswith(names)] == [
        "large MemoryError",
        "small 4.0",
        "large 8388608.0",
        "lost LitertError",
        "lost LitertError",
    ], done.stderr
    assert done.returncode == -signal.SIGABRT and "the GPU was lost: LiteRtLockTensorBuffer failed" in done.stderr
