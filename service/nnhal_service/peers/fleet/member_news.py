"""News of members: clients learn, during their sessions, which other services can take over."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress

from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.log import event

NEWS_NS = 1_000_000_000
"""Time between two looks at the members."""

Tell = Callable[[Sequence[str]], None]
"""Sends addresses to a client. It must not block."""


class MemberNews:
    """Tells clients when the members that they know have changed. Thread safe.

    Args:
        find: returns the addresses that a client should have, for those that it has.
    """

    def __init__(self, find: Callable[[Sequence[str]], Sequence[str]], timers: Timers, executor: Executor) -> None:
        self._find = find
        self._timers = timers
        self._executor = executor
        self._told: dict[Tell, Sequence[str]] = {}
        self._is_scheduled = False
        self._lock = threading.Lock()

    def add(self, tell: Tell, told: Sequence[str]) -> None:
        """Begin to tell a client when it needs other addresses than those that it has been told."""
        with self._lock:
            self._told[tell] = told
            self._schedule()

    def remove(self, tell: Tell) -> None:
        """Tell a client nothing any more. An unknown one is ignored."""
        with self._lock:
            self._told.pop(tell, None)

    def _schedule(self) -> None:
        if self._told and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_at(now_ns() + NEWS_NS, self._begin_look)

    def _begin_look(self) -> None:
        with suppress(RuntimeError):  # the service has stopped
            self._executor.submit(self._look)

    def _look(self) -> None:
        """Tell all clients whose members have changed, and have the next look scheduled."""
        with self._lock:
            clients = list(self._told.items())
        try:
            for tell, told in clients:
                self._look_for(tell, told)
        except Exception as error:  # without the next look, no client would ever hear of a member again
            event("members-not-told", logging.ERROR, error=f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._is_scheduled = False
                self._schedule()

    def _look_for(self, tell: Tell, told: Sequence[str]) -> None:
        """Tell a client if its members have changed. It keeps what it knows if no other member is known."""
        members = self._find(told)
        if members and set(members) != set(told) and self._note(tell, members):
            tell(members)

    def _note(self, tell: Tell, members: Sequence[str]) -> bool:
        """Note what a client is told now, and return whether it is still there."""
        with self._lock:
            if tell not in self._told:
                return False
            self._told[tell] = members
            return True
