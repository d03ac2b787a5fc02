"""The threads that serve calls: made as they are needed, and ended when they have been idle."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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

    Args:
        idle_s: how long a thread waits for work before it ends.
    """

    def __init__(self, limit: int, idle_s: float, name: str) -> None:
        super().__init__(limit, thread_name_prefix=name)
        self.limit = limit
        self._idle_s = idle_s
        self._name = name
        self._work: deque[_Work] = deque()
        self._changed = threading.Condition()
        self._alive: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a function on a thread of the pool.

        Raises:
            RuntimeError: the pool has been shut down.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool has been shut down")
            self._work.append(_Work(future, lambda: fn(*args, **kwargs)))
            if self._idle >= len(self._work):
                self._changed.notify()
            elif len(self._alive) < self.limit:
                self._grow()
        return future

    def _grow(self) -> None:
        """One more thread. Where memory is too short for its stack, the work waits for those that there are."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            _log.warning("there is no memory for another thread")
        else:
            self._alive.add(thread)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads when what is queued is done."""
        with self._changed:
            self._closed = True
            alive = list(self._alive)
            self._changed.notify_all()
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
        """The next work; None, for good, when there is none for too long or the pool is shut down."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._work or self._closed, self._idle_s)
            self._idle -= 1
            if self._work:
                return self._work.popleft()
            self._alive.discard(threading.current_thread())
            return None
