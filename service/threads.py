"""The threads that serve calls: made as they are needed, and ended when they have been idle."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

_log = logging.getLogger("nnhal.service")

P = ParamSpec("P")
T = TypeVar("T")


class _Work(NamedTuple):
    future: Future[Any]
    function: Callable[[], Any]


class CallPool(ThreadPoolExecutor):
    """Runs calls on at most `limit` threads.

    A ThreadPoolExecutor by type, because grpc asks for one; but the standard one keeps every thread that it ever made,
    so that a crowd of clients would leave its threads behind.

    Work and threads meet in a queue, which wakes a thread faster than a condition does. Each work in it belongs to one
    thread: to an idle one, which is then idle no more, or to a new one; or it waits for one that gets ready.

    Args:
        idle_s: how long a thread waits for work before it ends.
    """

    def __init__(self, limit: int, idle_s: float, name: str) -> None:
        super().__init__(limit, thread_name_prefix=name)
        self.limit = limit
        self._idle_s = idle_s
        self._name = name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._alive: set[threading.Thread] = set()
        self._idle = 0
        self._waiting = 0
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
            if self._idle:
                self._idle -= 1
            elif len(self._alive) >= self.limit or not self._grow():
                self._waiting += 1
            self._work.put(_Work(future, lambda: fn(*args, **kwargs)))
        return future

    def _grow(self) -> bool:
        """One more thread; gives False where memory is too short for its stack."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            _log.warning("there is no memory for another thread")
            return False
        self._alive.add(thread)
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads when what is queued is done."""
        with self._lock:
            self._closed = True
            alive = list(self._alive)
            for _ in alive:
                self._work.put(None)
        for thread in alive if wait else ():
            thread.join()

    def _run(self) -> None:
        work = self._work.get()
        while work is not None:
            if work.future.set_running_or_notify_cancel():
                try:
                    work.future.set_result(work.function())
                except BaseException as error:
                    work.future.set_exception(error)
            del work  # an idle thread must keep nothing alive
            work = self._next()

    def _next(self) -> _Work | None:
        """The next work; None, for good, when there is none for too long or the pool is shut down."""
        with self._lock:
            ready = self._waiting or self._closed
            if self._waiting:
                self._waiting -= 1
            elif not self._closed:
                self._idle += 1
        if not ready:
            try:
                return self._work.get(timeout=self._idle_s)
            except Empty:
                if self._ended():
                    return None
        return self._work.get()

    def _ended(self) -> bool:
        """Whether this thread, which found no work in time, may end: none has come for it meanwhile."""
        with self._lock:
            if self._closed or not self._idle:
                return False
            self._idle -= 1
            self._alive.discard(threading.current_thread())
            return True
