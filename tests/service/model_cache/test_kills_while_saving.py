"""Two processes save the same tokens and are killed at any instant: each entry is then absent or valid.

NNHAL_KILLS: number of kills (default 20).
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnhal_cache.store import Store
from tests.service.model_cache.saving_model import BYTES, TOKENS, has_valid_entry, open_cache

KILLS = int(os.environ.get("NNHAL_KILLS", "20"))
WRITERS = 2


def has_exited(process: int) -> bool:
    """Return whether a process has exited with all its threads. Those of a zombie may still hold files and locks."""
    return not Path(f"/proc/{process}").exists()


@pytest.mark.slow
def test_kills_while_saving(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    command = [sys.executable, "-m", "tests.service.model_cache.saving_model", str(root)]
    delays = random.Random(7)
    loaded = 0
    with (
        open_cache(root) as service,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent,
    ):
        commands, responses = parent.stdin, parent.stdout
        assert commands is not None and responses is not None

        def fork() -> int:
            commands.write("\n")
            commands.flush()
            return int(responses.readline())

        for _ in range(-(-KILLS // WRITERS)):
            writers = [fork() for _ in range(WRITERS)]
            for writer in writers:
                time.sleep(delays.uniform(0, 0.3))
                assert not has_exited(writer), "the writer exited by itself"
                os.kill(writer, signal.SIGKILL)
            while not all(map(has_exited, writers)):
                time.sleep(0.001)
            loaded += sum(has_valid_entry(*service, number) for number in range(TOKENS))
            store = Store(root, BYTES)
            store.sweep()
            if store.layout.exists():
                assert {path.name for path in store.layout.generations.iterdir()} == {
                    info.generation for info in store.list()
                }
        with contextlib.suppress(BrokenPipeError):
            commands.close()
        assert parent.wait(30) == 0
    assert loaded
