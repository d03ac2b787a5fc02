"""Objects of sessions are freed, in a process where no other test has left any."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_objects_of_sessions_are_freed() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "tests/service/freed_objects.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
