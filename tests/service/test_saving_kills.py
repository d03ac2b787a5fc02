"""Killed at any instant while they save, two processes at once and the same tokens: what is left is absent or right.

NNHAL_KILLS: how many kills (20).
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from cache.store import Store
from tests.service.saving_model import BYTES, TOKENS, is_absent_or_right, opened

KILLS = int(os.environ.get("NNHAL_KILLS", "20"))
WRITERS = 2


def ended(process: int) -> bool:
    """Whether a process is gone with all its threads: a zombie's may still hold its files, and their locks."""
    return not Path(f"/proc/{process}").exists()


def test_kills_while_saving(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    command = [sys.executable, "-m", "tests.service.saving_model", str(root)]
    delays = random.Random(7)
    loaded = 0
    with (
        opened(root) as service,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent,
    ):
        orders, answers = parent.stdin, parent.stdout
        assert orders is not None and answers is not None

        def fork() -> int:
            orders.write("\n")
            orders.flush()
            return int(answers.readline())

        for _ in range(-(-KILLS // WRITERS)):
            writers = [fork() for _ in range(WRITERS)]
            for writer in writers:
                time.sleep(delays.uniform(0, 0.3))
                assert not ended(writer), "it ended by itself"
                os.kill(writer, signal.SIGKILL)
            while not all(map(ended, writers)):
                time.sleep(0.001)
            loaded += sum(is_absent_or_right(*service, number) for number in range(TOKENS))
            store = Store(root, BYTES)
            store.sweep()
            if store.layout.exists():
                assert {path.name for path in store.layout.generations.iterdir()} == {
                    info.generation for info in store.list()
                }
        with contextlib.suppress(BrokenPipeError):
            orders.close()
        assert parent.wait(30) == 0
    assert loaded
