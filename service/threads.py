"""The threads that serve calls: made as they are needed, and ended when they have been idle."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

_log = logging.getLogger("nnhal.service")

P = ParamSpec("P")
T = TypeVar("T")


class _Work(NamedTuple):
    future: Future[Any]
    function: Callable[[], Any]


_Mailbox: TypeAlias = SimpleQueue[_Work | None]
"""What is handed to a thread that was idle; None: it is to end."""


class CallPool(ThreadPoolExecutor):
    """Runs calls on at most `limit` threads.

    A ThreadPoolExecutor by type, because grpc asks for one; but the standard one keeps every thread that it ever made,
    so that a crowd of clients would leave its threads behind.

    Each thread has a queue of its own, which wakes it faster than a condition does. Work goes to the thread that got
    ready last: what it needs is still in the caches, and threads that a crowd has left behind stay idle, and end.

    Args:
        idle_s: how long a thread waits for work before it ends.
    """

    def __init__(self, limit: int, idle_s: float, name: str) -> None:
        super().__init__(limit, thread_name_prefix=name)
        self.limit = limit
        self._idle_s = idle_s
        self._name = name
        self._lock = threading.Lock()
        self._backlog: deque[_Work] = deque()
        self._alive: set[threading.Thread] = set()
        self._idle: list[_Mailbox] = []
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a function on a thread of the pool.

        Raises:
            RuntimeError: the pool has been shut down.
        """
        future: Future[T] = Future()
        work = _Work(future, lambda: fn(*args, **kwargs))
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool has been shut down")
            if self._idle:
                self._idle.pop().put(work)
            else:
                self._backlog.append(work)
                if len(self._alive) < self.limit:
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
        with self._lock:
            self._closed = True
            alive = list(self._alive)
            while self._idle:
                self._idle.pop().put(None)
        for thread in alive if wait else ():
            thread.join()

    def _run(self) -> None:
        mailbox = _Mailbox()
        while (work := self._next(mailbox)) is not None:
            if work.future.set_running_or_notify_cancel():
                try:
                    work.future.set_result(work.function())
                except BaseException as error:
                    work.future.set_exception(error)
            del work  # an idle thread must keep nothing alive

    def _next(self, mailbox: _Mailbox) -> _Work | None:
        """The next work; None, for good, when there is none for too long or the pool is shut down."""
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            if self._closed:
                return None
            self._idle.append(mailbox)
        try:
            return mailbox.get(timeout=self._idle_s)
        except Empty:
            with self._lock:
                if mailbox in self._idle:
                    self._idle.remove(mailbox)
                    self._alive.discard(threading.current_thread())
                    return None
        return mailbox.get()  # it has come meanwhile
