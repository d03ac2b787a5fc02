"""The limit on the memory of the process."""

import subprocess
import sys

import pytest

from service import process

PROGRAM = """
import resource, sys
import numpy as np
from service.process import limit_memory
limit_memory(int(sys.argv[1]), 10)
print(resource.getrlimit(resource.RLIMIT_DATA)[0])
np.ones(2**26, np.uint8)
try:
    np.zeros(2**32, np.uint8)
except MemoryError:
    print("refused")
"""


def run(wanted: int) -> list[str]:
    made = subprocess.run([sys.executable, "-c", PROGRAM, str(wanted)], capture_output=True, text=True, check=True)
    return made.stdout.split()


def test_an_allocation_beyond_it_fails() -> None:
    limit, *rest = run(2**30)
    assert 2**30 < int(limit) < 2**31
    assert rest == ["refused"]


def test_it_is_what_the_machine_has() -> None:
    limit, *_ = run(0)
    assert process.available() * 0.9 <= int(limit) <= process.available() + 2**30


@pytest.mark.parametrize(("text", "expected"), [("max", None), ("1000000", 1000000)])
def test_a_container_has_less(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None
) -> None:
    path = tmp_path_factory.mktemp("cgroup") / "memory.max"
    path.write_text(f"{text}\n")
    monkeypatch.setattr(process, "_CONTAINER_LIMITS", ())
    whole = process.available()
    monkeypatch.setattr(process, "_CONTAINER_LIMITS", (path, path.with_name("absent")))
    assert process.available() == (expected or whole)


HEAPS = """
import ctypes, threading
from service.process import tune_malloc
tune_malloc()
threads = [threading.Thread(target=lambda: bytes(1000)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
stdout = ctypes.c_void_p.in_dll(libc, "stdout")
libc.malloc_info(0, stdout)
libc.fflush(stdout)
"""


KEPT = """
import os
from service.process import give_back_memory, tune_malloc
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
tune_malloc()
before = resident()
block = b"x" * (20 << 20)
del block
print(resident() - before)
give_back_memory()
print(resident() - before)
"""


def test_what_is_let_go_is_kept_until_it_is_given_back() -> None:
    made = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    kept, left = map(int, made.stdout.split())
    assert kept >= 19 and left <= 2


def test_threads_share_a_heap() -> None:
    made = subprocess.run([sys.executable, "-c", HEAPS], capture_output=True, text=True, check=True)
    assert made.stdout.count("<heap nr=") == 1
