"""The threads that serve calls: made as they are needed, and ended when they have been idle."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Work(NamedTuple):
    future: Future[Any]
    function: Callable[[], Any]


class CallPool(ThreadPoolExecutor):
    """Runs calls on at most `limit` threads.

    A ThreadPoolExecutor by type, because grpc asks for one; but the standard one keeps every thread that it ever made,
    so that a crowd of clients would leave its threads behind.

    Args:
        idle_s: how long a thread waits for work before it ends.
    """

    def __init__(self, limit: int, idle_s: float, name: str) -> None:
        super().__init__(limit, thread_name_prefix=name)
        self._limit = limit
        self._idle_s = idle_s
        self._name = name
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a function on a thread of the pool.

        Raises:
            RuntimeError: the pool has been shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool has been shut down")
            self._queue.put(_Work(future, lambda: fn(*args, **kwargs)))
            if self._idle < self._queue.qsize() and len(self._alive) < self._limit:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._alive.add(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads when what is queued is done."""
        with self._lock:
            self._closed = True
            alive = list(self._alive)
            for _ in alive:
                self._queue.put(None)
        for thread in alive if wait else ():
            thread.join()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if work.future.set_running_or_notify_cancel():
                try:
                    work.future.set_result(work.function())
                except BaseException as error:
                    work.future.set_exception(error)
            del work  # an idle thread must keep nothing alive

    def _next(self) -> _Work | None:
        """The next work; None when there is none for too long, or the pool is shut down."""
        while True:
            with self._lock:
                self._idle += 1
            try:
                work = self._queue.get(timeout=self._idle_s)
            except queue.Empty:
                work = None
            with self._lock:
                self._idle -= 1
                # what was queued at the last moment counted on this thread
                if work is not None or self._closed or self._queue.empty():
                    if work is None:
                        self._alive.discard(threading.current_thread())
                    return work
