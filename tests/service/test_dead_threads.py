"""Threads that die of an exception: the process ends in order, unless the thread served a single call."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, signal, sys, threading
from nnhal_service import log
from nnhal_service.dead_threads import end_with_threads

log.configure(stream=sys.stdout)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
end_with_threads()
thread = threading.Thread(target=lambda: 1 / 0, name=sys.argv[1])
thread.start()
thread.join()
"""


@pytest.mark.parametrize(("name", "status"), [("nnhal-metrics", 7), ("nnhal-data-call", 0), ("Thread-1", 0)])
def test_end_of_a_thread(name: str, status: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == status, run.stderr
    assert f"ERROR thread-died thread={name} why='ZeroDivisionError: division by zero'" in run.stdout
    assert "in <lambda>" in run.stdout
