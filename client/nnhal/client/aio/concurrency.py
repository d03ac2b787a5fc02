"""Locks, delays and blocking work for asyncio. `nnhal.client.sync.concurrency` has the same names for threads."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Work: TypeAlias = Callable[P, Awaitable[T]]
"""Function that makes calls."""
Lock = asyncio.Lock
sleep = asyncio.sleep


async def acquire_within(lock: asyncio.Lock, seconds: float) -> bool:
    """Acquire a lock, and return False if that takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await lock.acquire()
    except TimeoutError:
        return False


async def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that would block the event loop for too long, in a thread."""
    return await asyncio.to_thread(function, *args, **kwargs)


async def create_blocking(create: Callable[[], T], close: Callable[[T], object]) -> T:
    """Create an object in a thread.

    If the task is cancelled meanwhile, the object is closed once it has been created.
    """
    creating = asyncio.ensure_future(asyncio.to_thread(create))

    def close_created(created: "asyncio.Future[T]") -> None:
        if not created.cancelled() and created.exception() is None:
            threading.Thread(target=close, args=(created.result(),), name="nnhal-close-unwanted").start()

    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        creating.add_done_callback(close_created)
        raise
