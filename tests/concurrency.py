"""Concurrent calls, tests in their own processes, and polling for conditions that other threads or processes meet."""

import functools
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection

TIMEOUT_S = 120
"""Timeout of concurrent work. It is generous because the machine may be busy."""


def run_concurrently(count: int, work: Callable[[int], None]) -> None:
    """Call work(0), work(1) and so on in one thread each, wait for all, and raise the first error."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), f"some threads still run after {TIMEOUT_S} s"


def new_threads(before: Collection[threading.Thread]) -> list[str]:
    """Return the names of the running threads that were not among those of `threading.enumerate()` before.

    A number of threads would not do: threads of earlier tests end at any time.
    """
    return sorted(thread.name for thread in threading.enumerate() if thread not in before)


def wait_until(condition: Callable[[], object], timeout_s: float = 60) -> bool:
    """Poll a condition. Return False if it is still false after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def in_own_process(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a process of its own, because it forks: gRPC's threads in that of pytest may abort the child.

    Args:
        test: the test. Its arguments can be pickled.
    """

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        order = pickle.dumps((test.__module__, test.__name__, arguments))
        finished = subprocess.run(
            [sys.executable, "-c", _RUN], input=order, capture_output=True, check=False, timeout=TIMEOUT_S
        )
        assert finished.returncode == 0, finished.stderr.decode()

    return run


_RUN = """
import importlib, pickle, sys
module, name, arguments = pickle.load(sys.stdin.buffer)
vars(importlib.import_module(module))[name].__wrapped__(**arguments)
"""
