"""Locks, delays and blocking work for asyncio. `nnhal.client.sync.concurrency` has the same names for threads."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

from nnhal.client.shm.pool import ChannelFactory
from nnhal.shm.protocol import MAX_BYTES

if TYPE_CHECKING:
    from nnhal.client.shm.channel import ShmChannel

P = ParamSpec("P")
T = TypeVar("T")

Work: TypeAlias = Callable[P, Awaitable[T]]
"""Function that makes calls."""
Started: TypeAlias = asyncio.Task[T]
"""Work in progress."""
Lock = asyncio.Lock
StateLock = contextlib.nullcontext
"""Lock of state that changes without waiting. Tasks need none: they switch only where they wait."""
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


async def result_of(started: Awaitable[T]) -> T:
    """Wait for the result of work in progress."""
    return await started


async def open_channel(factory: ChannelFactory, depth: int) -> "ShmChannel | None":
    """Open a channel, or return None if the data socket cannot be used."""
    channel = await create_blocking(lambda: factory.open(depth), _close_channel)
    if channel is not None:
        channel.connection.setblocking(False)
    return channel


def _close_channel(channel: "ShmChannel | None") -> None:
    if channel is not None:
        channel.connection.close()


async def receive_packet(channel: "ShmChannel") -> bytes:
    """Wait for the next packet on a channel; b"" if its connection has ended."""
    return await asyncio.get_running_loop().sock_recv(channel.connection, MAX_BYTES)
