"""Concurrent calls, forks, and polling for conditions that other threads or processes fulfill."""

import gc
import os
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


def fork() -> int:
    """Fork the process of pytest. The child collects no garbage: gRPC's finalizers may abort without its threads."""
    gc.disable()
    child = os.fork()
    if child:
        gc.enable()
    return child
