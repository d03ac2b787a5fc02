"""Locks, delays and blocking work for threads. `nnhal.client.aio.concurrency` has the same names for asyncio."""

import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Work: TypeAlias = Callable[P, T]
"""Function that makes calls."""
Lock = threading.Lock
sleep = time.sleep


def acquire_within(lock: threading.Lock, seconds: float) -> bool:
    """Acquire a lock, and return False if that takes longer than `seconds`."""
    return lock.acquire(timeout=seconds)


def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in this thread."""
    return function(*args, **kwargs)


def create_blocking(create: Callable[[], T], close: Callable[[T], object]) -> T:
    """Create an object in this thread. It is never unwanted, so `close` is not called."""
    return create()
