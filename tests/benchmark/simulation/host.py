"""Host of a simulated fleet: its CPUs, its sessions, and its view of the fleet, which is that of the product."""

import heapq
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from nnhal_service.peers.fleet.fleet_directory import FleetDirectory
from nnhal_service.peers.fleet.member import Member, MemberTable, model_key
from nnhal_service.peers.fleet.members_file import STALE_S
from tests.benchmark.simulation.event_loop import EventLoop
from tests.benchmark.simulation.times import PING_S

_LATE_PART = 0.5
"""Part of the time between pings after which, in the mean, a silent death is noticed."""


class SimulatedHost:
    """A host with a service. Its work waits in one queue.

    Args:
        loop: the simulation.
        number: its number in the fleet.
        cpus: number of CPUs.
        random: chooses members.

    Attributes:
        record: what it reports, as of its start.
        is_alive: whether it runs.
        is_silent: whether connections to it are not refused, but get no answer: a host without power.
        is_draining: whether it takes no sessions.
        sessions: number of its sessions.
        outstanding: executions and other work in progress or waiting.
        models: models that it holds.
        table: the members that it knows.
        directory: decides where clients go.
    """

    def __init__(self, loop: EventLoop, number: int, cpus: int, random: Random) -> None:
        self._loop = loop
        self.record = Member(
            f"host-{number}",
            f"host-{number}",
            f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:50051",
            cpus=cpus,
            free_bytes=2**34,
        )
        self.is_alive, self.is_silent, self.is_draining = True, False, False
        self.sessions = self.outstanding = self.generation = 0
        self.models: set[str] = set()
        self.table: MemberTable | None = None
        self.died_at = self._told_at = 0.0
        self._free_at = [0.0] * cpus
        self._waits, self._starts = 0.0, 0
        self.directory = FleetDirectory(
            _Members(self, loop), lambda: self.is_draining, lambda: loop.now, Random(random.random())
        )

    def submit(self, seconds: float, done: Callable[..., None], lost: Callable[..., None], *arguments: Any) -> None:
        """Begin some work of a client.

        Args:
            seconds: its CPU time.
            done: called at its end.
            lost: called instead when the client notices that the host is dead.
            arguments: arguments of both.
        """
        now = self._loop.now
        if not self.is_alive:
            self._loop.call_at(self._noticed_at(now), lost, *arguments)
            return
        start = max(now, self._free_at[0])
        heapq.heapreplace(self._free_at, start + seconds)
        self.outstanding += 1
        self._waits += start - now
        self._starts += 1
        self._loop.call_at(start + seconds, self._end, self.generation, done, lost, arguments)

    def _end(
        self, generation: int, done: Callable[..., None], lost: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        if generation == self.generation:
            self.outstanding -= 1
            done(*arguments)
            return
        self._loop.call_at(self._noticed_at(0.0), lost, *arguments)

    def _noticed_at(self, sent_at: float) -> float:
        """Return the time at which a client notices that this host is dead.

        Args:
            sent_at: time of the last message of the client. One without an acknowledgement is noticed sooner than the
                lack of answers to pings, which have not begun yet.
        """
        if not self.is_silent:
            return max(self._loop.now, self.died_at)
        by_ping = self.died_at + (1 + _LATE_PART) * PING_S
        return max(self._loop.now, min(by_ping, sent_at + PING_S) if sent_at >= self.died_at else by_ping)

    def die(self, *, is_silent: bool) -> None:
        """Lose everything."""
        self.is_alive, self.is_silent, self.died_at = False, is_silent, self._loop.now
        self.generation += 1
        self.sessions = self.outstanding = 0
        self._free_at = [0.0] * self.record.cpus

    def start(self) -> None:
        """Start again, with the cache of before."""
        self.is_alive, self.is_draining, self.table = True, False, None
        self._free_at = [self._loop.now] * self.record.cpus

    def report(self) -> Member:
        """Return the record of now."""
        wait, self._waits, self._starts = self._waits / max(self._starts, 1), 0.0, 0
        return replace(
            self.record,
            draining=self.is_draining,
            sessions=self.sessions,
            executions=self.outstanding,
            wait_s=wait,
            models=frozenset(map(model_key, self.models)),
        )

    def learn(self, table: MemberTable) -> None:
        """Learn of the members."""
        self.table, self._told_at = table, self._loop.now

    @property
    def is_stale(self) -> bool:
        """True if the loads of members are too old to count."""
        return self._loop.now - self._told_at > STALE_S


class _Members:
    """The file with the members of a host: see `nnhal_service.peers.fleet.fleet_directory.MemberSource`."""

    def __init__(self, host: SimulatedHost, loop: EventLoop) -> None:
        self._host = host
        self._loop = loop

    def table(self) -> MemberTable | None:
        return self._host.table

    @property
    def is_stale(self) -> bool:
        return self._host.is_stale
