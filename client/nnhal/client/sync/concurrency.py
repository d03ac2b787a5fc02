"""Locks, delays and blocking work for threads. `nnhal.client.aio.concurrency` has the same names for asyncio."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

from nnhal.client.shm.pool import ChannelFactory

if TYPE_CHECKING:
    from nnhal.client.shm.channel import ShmChannel

P = ParamSpec("P")
T = TypeVar("T")

Work: TypeAlias = Callable[P, T]
"""Function that makes calls."""
Started: TypeAlias = Future[T]
"""Work in progress."""
Lock = threading.Lock
StateLock = threading.RLock
"""Lock of state that changes without waiting. Re-entrant: an interrupt may replace a channel within."""
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


def result_of(started: Future[T]) -> T:
    """Wait for the result of work in progress."""
    return started.result()


def open_channel(factory: ChannelFactory, depth: int) -> "ShmChannel | None":
    """Open a channel, or return None if the data socket cannot be used."""
    return factory.open(depth)


def receive_packet(channel: "ShmChannel") -> bytes:
    """Wait for the next packet on a channel, first spinning and then blocking; b"" if its connection has ended."""
    return channel.receive()
