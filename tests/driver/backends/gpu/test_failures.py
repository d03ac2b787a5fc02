"""GPUs that run out of memory, and that are lost."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.driver.backends.gpu.software_gpu import require_software_gpu


def test_full_gpu_recovers_and_lost_one_ends_a_supervised_process(tmp_path: Path) -> None:
    require_software_gpu()
    command = [sys.executable, "-m", "tests.driver.backends.gpu.failing_gpu", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = ("large", "small", "lost", "supervised")
    assert [line for line in done.stdout.splitlines() if line.startswith(names)] == [
        "large MemoryError",
        "small 4.0",
        "large 8388608.0",
        "lost LitertError",
        "lost LitertError",
    ], done.stderr
    assert done.returncode == -signal.SIGABRT and "the GPU was lost: LiteRtLockTensorBuffer failed" in done.stderr
