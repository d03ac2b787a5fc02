"""Writers that are killed at any time: every entry is absent or complete afterwards, and no files are left over.

NNHAL_KILLS: number of kills (20).
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from nnhal_cache.store import Store
from tests.cache.entries import load, token

KILLS = int(os.environ.get("NNHAL_KILLS", "20"))
WRITERS = 2

WRITE = """
import hashlib, os, sys
from pathlib import Path
from nnhal_cache.store import Store
from tests.cache.entries import token

store = Store(Path(sys.argv[1]), 40_000)  # smaller than all entries together: they evict each other
print("ready", flush=True)
number = 0
while True:
    number += 1
    body = hashlib.sha256(b"%d %d" % (os.getpid(), number)).digest() * 300
    with store.write("me", token(number % 4)) as pending:
        os.write(pending.model_fd, b"model" + body)
        os.write(pending.data_fd, b"data" + body)
        pending.commit()
"""


def is_complete(content: tuple[bytes, bytes]) -> bool:
    model, data = content
    body = model.removeprefix(b"model")
    return len(body) == 9600 and body == body[:32] * 300 and data == b"data" + body


def start(root: Path) -> "subprocess.Popen[bytes]":
    child = subprocess.Popen([sys.executable, "-c", WRITE, root], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def test_two_writers_killed_at_any_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", 2**20)
    delays = random.Random(7)
    seen = 0
    for _ in range(-(-KILLS // WRITERS)):
        children = [start(store.layout.root) for _ in range(WRITERS)]
        for child in children:
            end = time.monotonic() + delays.uniform(0, 0.1)
            while time.monotonic() < end:  # read while they write
                for number in range(4):
                    if (content := load(store, number)) is not None:
                        assert is_complete(content)
                        seen += 1
            child.send_signal(signal.SIGKILL)
        for child in children:
            with child:
                assert child.wait() == -signal.SIGKILL
        assert all(is_complete(content) for number in range(4) if (content := load(store, number)) is not None)
        store.sweep()
        links = {info.generation for info in store.list()}
        assert {path.name for path in store.layout.generations.iterdir()} == links
    assert seen
    assert {info.token for info in store.list()} <= {token(number) for number in range(4)}
