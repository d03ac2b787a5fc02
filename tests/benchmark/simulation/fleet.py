"""A simulated fleet: hosts, the registry of the product, and clients."""

import statistics
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from nnhal_fleet.registry import MemberRegistry, report_interval_s
from nnhal_service.peers.fleet.member import MemberTable
from tests.benchmark.simulation.client import ClientWorld, SimulatedClient
from tests.benchmark.simulation.event_loop import EventLoop
from tests.benchmark.simulation.host import SimulatedHost
from tests.benchmark.simulation.times import EXECUTE_S, NODE_DEATH_S, START_S

MODELS = 200
"""Number of different models. Some are used much more than others."""
USE = 0.6
"""Part of the CPU time of all hosts that executions take."""
_SECOND = 1.0


@dataclass
class History:
    """State of a fleet in each second.

    Attributes:
        times: the seconds.
        answers: executions that ended in each.
        slowest: 99th percentile of their latencies.
        mean_sessions: mean number of sessions of the hosts that run.
        most_sessions: largest number of sessions of a host.
        longest_queue: largest number of executions for each CPU of a host.
        hosts: number of hosts that run.
    """

    times: list[float] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    slowest: list[float] = field(default_factory=list)
    mean_sessions: list[float] = field(default_factory=list)
    most_sessions: list[int] = field(default_factory=list)
    longest_queue: list[float] = field(default_factory=list)
    hosts: list[int] = field(default_factory=list)


class SimulatedFleet:
    """Hosts, registry and clients.

    Args:
        hosts: number of hosts.
        clients: number of clients for which the hosts are made: their executions then need `USE` of the CPUs.
        seed: two simulations with the same seed and arguments are the same.
        cpus: CPUs of a host.
        executes: whether clients execute their models.
        interval_s: time between two reports of a member; None for that of the product.
        active: number of hosts that run at the start; None for all.

    Attributes:
        loop: the simulation.
        hosts: all hosts, also dead ones.
        clients: all clients.
        world: shared by the clients.
        registry: the registry.
        is_registry_up: whether the registry answers.
        returns: times from the loss of a session to the next answer.
        latencies: latencies of all executions.
        history: state in each second.
        told: number of records that the registry has sent.
    """

    def __init__(
        self,
        hosts: int,
        clients: int,
        seed: int = 1,
        cpus: int = 4,
        *,
        executes: bool = True,
        interval_s: float | None = None,
        active: int | None = None,
    ) -> None:
        self.random = Random(seed)
        self.loop = EventLoop()
        self.registry = MemberRegistry(lambda: self.loop.now, Random(seed))
        self.is_registry_up = True
        self.hosts: list[SimulatedHost] = []
        self.clients: list[SimulatedClient] = []
        self.returns: list[float] = []
        self.latencies = array("d")
        self.history = History()
        self.told = 0
        self._seen = 0
        self._interval_s = interval_s
        self._cpus = cpus
        self._by_address: dict[str, SimulatedHost] = {}
        think_s = clients * EXECUTE_S / (hosts * cpus * USE) if executes else 0.0
        self.world = ClientWorld(
            self.loop, self._by_address, think_s, self.random, self.latencies.append, self.returns.append
        )
        for _ in range(hosts if active is None else active):
            self._create_host()
        for host in self.hosts:
            self.registry.report(host.report())
        for host in self.hosts:
            self._begin_reports(host)
        self.loop.call_at(_SECOND, self._observe)

    # ---- Hosts ------------------------------------------------------------------------------------------

    def add_host(self) -> SimulatedHost:
        """Add a host that serves now."""
        host = self._create_host()
        self._begin_reports(host)
        return host

    def _create_host(self) -> SimulatedHost:
        host = SimulatedHost(self.loop, len(self.hosts), self._cpus, self.random)
        self.hosts.append(host)
        self._by_address[host.record.address] = host
        return host

    @property
    def alive(self) -> list[SimulatedHost]:
        """The hosts that run."""
        return [host for host in self.hosts if host.is_alive]

    @property
    def serving(self) -> list[SimulatedHost]:
        """The hosts that take sessions."""
        return [host for host in self.alive if not host.is_draining]

    def _begin_reports(self, host: SimulatedHost) -> None:
        """Report at once, and from then on at times that differ from those of other hosts."""
        if self.is_registry_up:
            self.registry.report(host.report())
            self._answer(host)
        first = self.loop.now + self.random.random() * self._interval(host)
        self.loop.call_at(first, self._report, host, host.generation)

    def _interval(self, host: SimulatedHost) -> float:
        return self._interval_s if self._interval_s is not None else report_interval_s(self.registry.count)

    def _report(self, host: SimulatedHost, generation: int) -> None:
        if host.generation != generation:
            return
        if self.is_registry_up:
            self.registry.report(host.report())
            self._answer(host)
        self.loop.call_at(self.loop.now + self._interval(host), self._report, host, generation)

    def _answer(self, host: SimulatedHost) -> None:
        members = self.registry.members_for(host.record.id)
        self.told += len(members)
        host.learn(MemberTable(host.record.id, members))

    def kill(self, hosts: Iterable[SimulatedHost], *, is_silent: bool) -> None:
        """Kill hosts at once: without power, or only their services."""
        for host in hosts:
            host.die(is_silent=is_silent)
            self.loop.call_at(self.loop.now + NODE_DEATH_S, self._forget, host)

    def _forget(self, host: SimulatedHost) -> None:
        if not host.is_alive:
            self.registry.remove(host.record.id)

    def roll(self, hosts: Sequence[SimulatedHost], at_once: int, done: Callable[[], None]) -> None:
        """Replace the services of hosts as `nnhal_fleet.rolling` does, several at once."""
        left = iter(hosts)
        for _ in range(at_once):
            self._roll_next(left, done)

    def _roll_next(self, left: Iterable[SimulatedHost], done: Callable[[], None]) -> None:
        host = next(iter(left), None)
        if host is None:
            done()
            return
        host.is_draining = True
        self._begin_reports(host)
        self._restart_when_empty(host, left, done)

    def _restart_when_empty(self, host: SimulatedHost, left: Iterable[SimulatedHost], done: Callable[[], None]) -> None:
        if host.sessions:
            self.loop.call_at(self.loop.now + 0.1, self._restart_when_empty, host, left, done)
            return
        host.die(is_silent=False)
        self.loop.call_at(self.loop.now + START_S, self._restarted, host, left, done)

    def retire(self, hosts: Iterable[SimulatedHost]) -> None:
        """Have hosts drain, and end them when they are empty."""
        for host in hosts:
            host.is_draining = True
            self.registry.report(host.report())
            self._end_when_empty(host)

    def _end_when_empty(self, host: SimulatedHost) -> None:
        if host.sessions:
            self.loop.call_at(self.loop.now + 0.5, self._end_when_empty, host)
            return
        host.die(is_silent=False)
        self.registry.remove(host.record.id)

    def _restarted(self, host: SimulatedHost, left: Iterable[SimulatedHost], done: Callable[[], None]) -> None:
        host.start()
        self._begin_reports(host)
        self._roll_next(left, done)

    # ---- Clients ----------------------------------------------------------------------------------------

    def add_clients(self, count: int, seconds: float) -> None:
        """Add clients, evenly over some seconds. Each knows one host, as from a name in DNS."""
        start = self.loop.now
        for number in range(count):
            self.loop.call_at(start + seconds * number / count, self._add_client)

    def _add_client(self) -> None:
        while True:  # a name in DNS has the addresses of those that serve
            host = self.random.choice(self.hosts)
            if host.is_alive and not host.is_draining:
                break
        address = host.record.address
        model = f"{int(MODELS * self.random.random() ** 3):016x}" + "0" * 48
        client = SimulatedClient(self.world, address, model)
        self.clients.append(client)
        client.connect()

    def remove_clients(self, count: int, seconds: float) -> None:
        """End some clients, evenly over some seconds."""
        for number in range(count):
            self.loop.call_at(self.loop.now + seconds * number / count, self._remove_client)

    def _remove_client(self) -> None:
        position = self.random.randrange(len(self.clients))
        self.clients[position], self.clients[-1] = self.clients[-1], self.clients[position]
        self.clients.pop().leave()

    # ---- Results ----------------------------------------------------------------------------------------

    def _observe(self) -> None:
        """Note the state of this second."""
        alive, history = self.alive, self.history
        new = sorted(self.latencies[self._seen :])
        self._seen = len(self.latencies)
        history.times.append(self.loop.now)
        history.answers.append(len(new))
        history.slowest.append(new[int(len(new) * 0.99)] if new else 0.0)
        history.mean_sessions.append(statistics.fmean(host.sessions for host in alive))
        history.most_sessions.append(max(host.sessions for host in alive))
        history.longest_queue.append(max(host.outstanding / host.record.cpus for host in alive))
        history.hosts.append(len(alive))
        self.loop.call_at(self.loop.now + _SECOND, self._observe)

    def imbalance(self) -> float:
        """Return the sessions of the fullest host, in multiples of the mean."""
        sessions = [host.sessions for host in self.alive]
        return max(sessions) / statistics.fmean(sessions)

    def is_consistent(self) -> bool:
        """Return whether each client has a session at a host that runs, or looks for one, and none is counted twice."""
        counted = sum(host.sessions for host in self.alive)
        having = [client for client in self.clients if client.has_session]
        return counted == len(having)
