"""Thread pool that serves calls: threads are created on demand and end after some idle time."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from nnhal.grpc_internals.server_calls import when_received
from nnhal_service.memory_limits import thread_follower

_log = logging.getLogger("nnhal.service")

P = ParamSpec("P")
T = TypeVar("T")


class _WorkItem(NamedTuple):
    future: Future[Any]
    function: Callable[[], Any]


_WorkSlot: TypeAlias = SimpleQueue[_WorkItem | None]
"""Queue of one idle thread; None tells the thread to end."""


class ElasticThreadPool(ThreadPoolExecutor):
    """Runs functions on at most `limit` threads.

    It is a ThreadPoolExecutor by type, because gRPC requires one. But the standard class keeps every thread that it
    ever created, so a burst of clients would leave its threads behind.

    Each thread has a queue of its own, which wakes it faster than a condition does. Work goes to the thread that became
    idle last: its data is still in the caches, and surplus threads stay idle and end. For a call of `receive_early`, an
    idle thread is woken when the request is there.

    Args:
        idle_s: seconds that a thread waits for work before it ends.
        newest_first: whether the newest work comes first when all threads are busy, not the oldest. Under a flood, the
            client that has waited least is the most likely to still wait.
    """

    def __init__(self, limit: int, idle_s: float, name: str, *, newest_first: bool = False) -> None:
        super().__init__(limit, thread_name_prefix=name)
        self.limit = limit
        self._idle_s = idle_s
        self._name = name
        self._newest_first = newest_first
        self._lock = threading.Lock()
        self._backlog: deque[_WorkItem] = deque()
        self._alive: set[threading.Thread] = set()
        self._idle: list[_WorkSlot] = []
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function on a thread of the pool.

        Raises:
            RuntimeError: the pool has been shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool has been shut down")
            slot = self._idle.pop() if self._idle else None
            if slot is None:
                self._backlog.append(_WorkItem(future, lambda: fn(*args, **kwargs)))
                if len(self._alive) < self.limit:
                    self._start_thread()
        if slot is not None:
            when_received(
                partial(fn, **kwargs) if kwargs else fn, args, lambda function: slot.put(_WorkItem(future, function))
            )
        return future

    def _start_thread(self) -> None:
        """Start one more thread. If there is no memory for its stack, the work waits for an existing thread."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread_follower.adjust(starting=1)
        try:
            thread.start()
        except RuntimeError:
            _log.warning("cannot start another thread: out of memory")
        else:
            self._alive.add(thread)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the queued work is done."""
        with self._lock:
            self._closed = True
            alive = list(self._alive)
            while self._idle:
                self._idle.pop().put(None)
        for thread in alive if wait else ():
            thread.join()

    def _run(self) -> None:
        slot = _WorkSlot()
        while (item := self._next(slot)) is not None:
            if item.future.set_running_or_notify_cancel():
                try:
                    item.future.set_result(item.function())
                except BaseException as error:
                    item.future.set_exception(error)
            del item  # an idle thread must not keep the work alive

    def _next(self, slot: _WorkSlot) -> _WorkItem | None:
        """Wait for the next work; None if the thread has been idle for too long or the pool is shut down."""
        with self._lock:
            if self._backlog:
                return self._backlog.pop() if self._newest_first else self._backlog.popleft()
            if self._closed:
                return None
            self._idle.append(slot)
        try:
            return slot.get(timeout=self._idle_s)
        except Empty:
            with self._lock:
                if slot in self._idle:
                    self._idle.remove(slot)
                    self._alive.discard(threading.current_thread())
                    return None
        return slot.get()  # the work arrived after the timeout
