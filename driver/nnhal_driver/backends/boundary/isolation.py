"""Threads for the calls of plug-ins. A plug-in that hangs stops nothing but its own use.

A plug-in may hang in any method. So its calls run on threads of its own, and the thread that prepares or executes waits
for the answer: as long as its work may go on, and until a call of the plug-in takes too long. From then on it *hangs*:
its calls fail at once, until the one that takes too long returns. Built-in backends are called directly.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeVar

from nnhal.errors import HalError, general_failure, out_of_memory
from nnhal.types import ErrorStatus
from nnhal_driver.activity import adopt_record, current_record
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.identity import identity_of
from nnhal_driver.scheduling.current_work import CurrentWork, current_work
from nnhal_driver.scheduling.paced_check import proceed

R = TypeVar("R")

DEFAULT_TIMEOUT_S = 30.0
"""Seconds that a call has to compile, load, optimize, save or execute."""
QUESTION_S = 5.0
"""Seconds that any other call has at most."""
OVERDUE_S = 1.0
"""Seconds that an execution may go on after its deadline or its cancellation, besides twice its usual time."""

_LONG = ("compile", "load", "optimize", "save", "before_load", "after_load")
_EXECUTING = ("execute", "wait_finish", "wait_deferred")
_ENDS = ("before_unload", "after_unload", "resize_end", "execute_end", "memory.release")
"""Hooks that undo others, for which a call goes on when nothing waits for it any more."""
_COMPILATIONS = 2
"""Number of compilations of one backend at the same time. Further ones wait, without a slot."""
_POLL_S = 0.02

_ATTRIBUTE = "_nnhal_isolation"
_log = logging.getLogger(__name__)


class HangError(HalError):
    """A plug-in hangs. The log has it already."""


class _CurrentCall(threading.local):
    """Call for which a thread of a plug-in works."""

    call: "_Call | None" = None


_current = _CurrentCall()


def isolate(backend: Backend, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Give a plug-in threads of its own. `timeout_s`: see `DEFAULT_TIMEOUT_S`."""
    if identity_of(backend).files and getattr(backend, _ATTRIBUTE, None) is None:
        object.__setattr__(backend, _ATTRIBUTE, _Isolation(backend.id, timeout_s))  # it may be a frozen dataclass


def is_isolated(backend: object) -> bool:
    """Return whether a backend has threads of its own."""
    return getattr(backend, _ATTRIBUTE, None) is not None


def isolated(backend: object, method: str, function: Callable[[], R]) -> R:
    """Run a function that calls a backend: on a thread of the backend, if it has some. Messages name it `method`.

    Calls of the same backend within the function run on that thread, and each has a timeout of its own.

    Raises:
        HangError: the backend does not answer in time.
        HalError: what the check of the work raises.
        BaseException: what the function raises.
    """
    isolation: _Isolation | None = getattr(backend, _ATTRIBUTE, None)
    return function() if isolation is None else isolation.run(method, function)


def step(backend: object, method: str, function: Callable[[], R]) -> R:
    """Run a function that calls a backend on the calling thread. If the thread is one of the backend, note `method`.

    Raises:
        HalError: nothing waits for the call of the backend that this is part of.
        BaseException: what the function raises.
    """
    call = _current.call
    is_own = call is not None and call.isolation is getattr(backend, _ATTRIBUTE, None)
    return call.run_step(method, function) if call is not None and is_own else function()


def refusals(backend: object) -> tuple[int, str]:
    """Return how many calls of a backend have failed without an answer, and why the last one has."""
    isolation: _Isolation | None = getattr(backend, _ATTRIBUTE, None)
    return (0, "") if isolation is None else isolation.refusals


def end_threads(backend: object) -> None:
    """End the threads of a backend that are free. Others end with their call."""
    isolation: _Isolation | None = getattr(backend, _ATTRIBUTE, None)
    if isolation is not None:
        isolation.close()


class _Isolation:
    """Threads of one backend, and its calls. Thread safe.

    Attributes:
        refusals: how many calls have failed without an answer, and why the last one has.
    """

    def __init__(self, id_: str, timeout_s: float) -> None:
        self.refusals = (0, "")
        self._id = id_
        self._timeout_s = timeout_s
        self._lock = threading.RLock()  # the garbage collector may call a backend anywhere
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._free = 0
        self._closed = False
        self._running: set[_Call] = set()
        self._compilations = threading.Semaphore(_COMPILATIONS)

    def run(self, method: str, function: Callable[[], R]) -> R:
        """Run a function on a thread of the backend; see `isolated`."""
        outer = _current.call
        if outer is not None and outer.isolation is self:
            return outer.run_step(method, function)
        work = current_work.get()
        self._refuse()
        while method in _LONG and not self._compilations.acquire(timeout=_POLL_S):
            self._wait(work)
        call = _Call(self, method, function, work.usual_s)
        self._start(call)
        try:
            while not call.ended.acquire(timeout=_POLL_S):
                self._wait(work)
        except BaseException:
            call.abandon()
            raise
        finally:
            if call.record is not None:
                call.record.move(threading.get_ident())
        result: R = call.take_result()
        return result

    def _end(self, call: "_Call") -> None:
        self._running.discard(call)
        if call.is_long:
            self._compilations.release()
        if call.has_hung:
            _log.warning("backend %s has answered, and is used again", self._id)

    def close(self) -> None:
        """End the free threads."""
        with self._lock:
            count, self._free, self._closed = self._free, 0, True
        for _ in range(count):
            self._calls.put(None)

    def _start(self, call: "_Call") -> None:
        self._running.add(call)
        with self._lock:
            is_waiting = self._free > 0
            self._free -= is_waiting
        if is_waiting:
            self._calls.put(call)
            return
        try:
            threading.Thread(target=self._work, args=(call,), name=f"nnhal-{self._id}", daemon=True).start()
        except RuntimeError as error:
            self._end(call)
            raise out_of_memory("a thread", MemoryError(str(error))) from None

    def _work(self, call: "_Call | None") -> None:
        """Run calls. Whether anything waits for a call or not, the thread is free when it has returned."""
        while call is not None:
            call.run()
            self._end(call)
            with self._lock:
                self._free += not self._closed
            call.ended.release()
            del call  # a waiting thread must keep no model alive
            call = None if self._closed else self._calls.get()

    def _wait(self, work: CurrentWork) -> None:
        """Let others proceed while a call is awaited. Raises if the work ends, or if the backend hangs."""
        work.check()
        work.give_way()
        self._refuse()

    def _refuse(self) -> None:
        """Raise if a call takes too long."""
        for call in tuple(self._running):
            now = time.monotonic()
            seconds = now - call.since
            limit_s = self._timeout_s if call.method in (*_LONG, *_EXECUTING) else min(self._timeout_s, QUESTION_S)
            if seconds <= limit_s and now <= call.overdue_at:
                continue
            reason = f"backend {self._id} hangs: it has not answered in {call.method} for {seconds:.1f} s"
            if not call.has_hung:
                call.has_hung = True
                _log.error("%s. It is not used until it answers", reason)
            self.refusals = (self.refusals[0] + 1, reason)
            raise HangError(ErrorStatus.GENERAL_FAILURE, reason)


class _Call:
    """Call of a backend on a thread of its own.

    Attributes:
        method, since: what runs, and since when by time.monotonic().
        ended: lock that is free when the result is there.
        record: the record of the work that waits.
        is_abandoned: nothing waits for it any more.
        overdue_at: when it hangs for that reason.
        has_hung: the log says that it takes too long.
    """

    def __init__(self, isolation: _Isolation, method: str, function: Callable[[], Any], usual_s: float) -> None:
        self.isolation = isolation
        self.method, self.since = method, time.monotonic()
        self.is_long = method in _LONG
        self._patience_s = OVERDUE_S + 2 * usual_s if method in _EXECUTING else math.inf
        self.overdue_at = math.inf
        self.ended = threading.Lock()
        self.ended.acquire()
        self.record = current_record()
        self.is_abandoned = self.has_hung = False
        self._context = copy_context()
        self._function: Callable[[], Any] | None = function
        self._result: Any = None
        self._error: BaseException | None = None

    def abandon(self) -> None:
        """Note that nothing waits for it any more."""
        self.is_abandoned, self.overdue_at = True, time.monotonic() + self._patience_s

    def run(self) -> None:
        """Run the function. Called once, on a thread of the backend."""
        _current.call = self
        try:
            with adopt_record(None if self.is_abandoned else self.record):
                self._result = self._context.run(self._run_function)
        except BaseException as error:
            self._error = error
        _current.call = self._function = None
        if self.is_abandoned:
            self._result = self._error = None

    def run_step(self, method: str, function: Callable[[], R]) -> R:
        """Run a function within this one, with a timeout of its own."""
        if self.is_abandoned and method not in _ENDS:
            raise general_failure("nothing waits for this call any more")
        outer = self.method
        self.method, self.since = method, time.monotonic()
        try:
            return function()
        finally:
            self.method, self.since = outer, time.monotonic()

    def take_result(self) -> Any:
        """Return what the function has returned, or raise what it has raised. Called once."""
        error, self._error = self._error, None
        result, self._result = self._result, None
        try:
            if error is not None:
                raise error
            return result
        finally:
            del error  # its traceback refers to this frame

    def _run_function(self) -> Any:
        current_work.set(replace(current_work.get(), give_way=proceed))  # only its own thread gives way
        assert self._function is not None
        return self._function()
