"""Limit on the memory of the process, and settings of malloc."""

import resource
import subprocess
import sys

import pytest

from nnhal_service import memory_limits
from nnhal_service.memory_limits import client_bytes

PROGRAM = """
import resource, sys
import numpy as np
from nnhal_service.memory_limits import limit_memory
limit_memory(int(sys.argv[1]), 10)
print(resource.getrlimit(resource.RLIMIT_DATA)[0])
np.ones(2**26, np.uint8)
try:
    np.zeros(2**32, np.uint8)
except MemoryError:
    print("refused")
"""


def run(size: int) -> list[str]:
    completed = subprocess.run([sys.executable, "-c", PROGRAM, str(size)], capture_output=True, text=True, check=True)
    return completed.stdout.split()


def test_larger_allocation_fails() -> None:
    limit, *rest = run(2**30)
    assert 2**30 < int(limit) < 2**31
    assert rest == ["refused"]


def test_default_is_the_memory_of_the_machine() -> None:
    limit, *_ = run(0)
    assert memory_limits.available_bytes() * 0.9 <= int(limit) <= memory_limits.available_bytes() + 2**30


@pytest.mark.parametrize("size", [2**27, 2**30, 2**34])
def test_clients_leave_memory_to_the_service(size: int) -> None:
    assert size // 8 <= client_bytes(size, 10) <= size - size // 8


def test_bytes_of_clients_follow_the_limit_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_DATA: (2**30 + 10 * 2**20, -1), resource.RLIMIT_STACK: (2**20, -1)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[kind])
    assert client_bytes(0, 10) == client_bytes(2**40, 10) == 2**30 - 2**30 // 8 - 2**27
    assert client_bytes(2**29, 10) == 2**29 - 2**29 // 8 - 2**27


@pytest.mark.parametrize(("text", "expected"), [("max", None), ("1000000", 1000000)])
def test_container_limit(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None
) -> None:
    path = tmp_path_factory.mktemp("cgroup") / "memory.max"
    path.write_text(f"{text}\n")
    monkeypatch.setattr(memory_limits, "_CONTAINER_LIMITS", ())
    whole = memory_limits.available_bytes()
    monkeypatch.setattr(memory_limits, "_CONTAINER_LIMITS", (path, path.with_name("absent")))
    assert memory_limits.available_bytes() == (expected or whole)


HEAPS = """
import ctypes, threading
from nnhal_service.memory_limits import tune_malloc
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


RETAINED = """
import os
from nnhal_driver.mapped_memory import trim_memory
from nnhal_service.memory_limits import tune_malloc
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
tune_malloc()
before = resident()
block = b"x" * (20 << 20)
del block
print(resident() - before)
trim_memory()
print(resident() - before)
"""


def test_freed_memory_is_retained_until_it_is_trimmed() -> None:
    completed = subprocess.run([sys.executable, "-c", RETAINED], capture_output=True, text=True, check=True)
    retained, remaining = map(int, completed.stdout.split())
    assert retained >= 19 and remaining <= 2


def test_threads_share_a_heap() -> None:
    completed = subprocess.run([sys.executable, "-c", HEAPS], capture_output=True, text=True, check=True)
    assert completed.stdout.count("<heap nr=") == 1
