"""Scenarios of large fleets. Each is a function that runs a simulation, and returns it with the figures to print."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from unittest.mock import patch

from nnhal_fleet.registry import MAX_TOLD
from nnhal_fleet.scaling import ScalingRules, ScalingState, decide
from nnhal_service.peers.fleet import placement
from tests.benchmark.simulation.fleet import SimulatedFleet
from tests.benchmark.simulation.times import HOST_ARRIVAL_S

ARRIVAL_S = 60.0
"""Seconds in which all clients of a scenario arrive."""


@dataclass(frozen=True)
class Result:
    """Result of a scenario.

    Attributes:
        fleet: the fleet at the end.
        figures: texts by what they say.
        events: things that happened, by time in seconds.
    """

    fleet: SimulatedFleet
    figures: Mapping[str, str]
    events: Mapping[float, str]


Scenario = Callable[[int, int], Result]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a scenario by its name."""
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


def percentiles(values: Sequence[float]) -> str:
    """Return the median, the 99th percentile and the largest of some times."""
    ordered = sorted(values)
    p99 = ordered[int(len(ordered) * 0.99)]
    return f"p50 {statistics.median(ordered):.2f} s, p99 {p99:.2f} s, at most {ordered[-1]:.2f} s"


def lost(fleet: SimulatedFleet) -> str:
    """Let executions in progress end, and return how many did not."""
    fleet.world.think_s = 1e9
    fleet.loop.run(fleet.loop.now + 120)
    return str(fleet.world.started - fleet.world.answered)


@scenario
def steady(hosts: int, clients: int) -> Result:
    """Let all clients arrive in a minute, and stay."""
    fleet = SimulatedFleet(hosts, clients)
    fleet.add_clients(clients, ARRIVAL_S)
    fleet.loop.run(ARRIVAL_S + 5)
    begin = len(fleet.latencies)
    fleet.loop.run(ARRIVAL_S + 15)
    figures = {
        "sessions of the fullest host": f"{fleet.imbalance():.2f} times the mean",
        "clients that were sent on": f"{fleet.world.redirects / clients:.0%}",
        "latency": percentiles(fleet.latencies[begin:]),
    }
    return Result(fleet, {**figures, "lost": lost(fleet)}, {})


def _death(hosts: int, clients: int, *, is_silent: bool, registry: bool = True) -> Result:
    fleet = SimulatedFleet(hosts, clients)
    fleet.add_clients(clients, ARRIVAL_S)
    at = ARRIVAL_S + 5
    fleet.loop.run(at)
    fleet.is_registry_up = registry
    rack = fleet.hosts[: hosts // 10]
    fleet.kill(rack, is_silent=is_silent)
    fleet.loop.run(at + 50)
    figures = {
        "clients that lost their session": str(len(fleet.returns)),
        "next answer": percentiles(fleet.returns),
        "attempts that failed": str(fleet.world.failed_attempts),
        "sessions of the fullest host": f"{fleet.imbalance():.2f} times the mean",
        "longest queue of a host": f"{max(fleet.history.longest_queue[int(at) :]):.1f} calls for each CPU",
    }
    return Result(fleet, {**figures, "lost": lost(fleet)}, {at: f"death of {len(rack)} hosts"})


@scenario
def services_die(hosts: int, clients: int) -> Result:
    """Kill the services of 10 % of the hosts at once. Connections to them are refused."""
    return _death(hosts, clients, is_silent=False)


@scenario
def rack_dies(hosts: int, clients: int) -> Result:
    """Cut the power of 10 % of the hosts at once. Clients get no answer from them."""
    return _death(hosts, clients, is_silent=True)


@scenario
def registry_lost(hosts: int, clients: int) -> Result:
    """Do the same as `services_die`, and lose the registry at the same moment."""
    return _death(hosts, clients, is_silent=False, registry=False)


@scenario
def rolling_restart(hosts: int, clients: int) -> Result:
    """Replace all services, 2 % of the hosts at once, for 40 seconds."""
    fleet = SimulatedFleet(hosts, clients)
    fleet.add_clients(clients, ARRIVAL_S)
    at, seconds = ARRIVAL_S + 5, 40
    fleet.loop.run(at)
    opened = fleet.world.opened
    fleet.roll(fleet.hosts, max(1, hosts // 50), lambda: None)
    fleet.loop.run(at + seconds)
    replaced = sum(host.generation for host in fleet.hosts)
    figures = {
        "hosts that were replaced": f"{replaced} in {seconds} s, {max(1, hosts // 50)} at once",
        "moves of clients for each replacement": f"{(fleet.world.opened - opened) / max(replaced, 1):.0f}",
        "sessions of the fullest host": f"{fleet.imbalance():.2f} times the mean",
        "next answer": percentiles(fleet.returns),
    }
    return Result(fleet, {**figures, "lost": lost(fleet)}, {at: "begin"})


@scenario
def stale_reports(hosts: int, clients: int) -> Result:
    """Let clients arrive with reports of different ages, and different numbers of compared members."""
    figures, last = {}, None
    for interval_s in (0.5, 5.0, 20.0):
        texts = []
        for compared in (1, 2, 8, MAX_TOLD):
            with patch.object(placement, "SHORTLIST", compared):
                last = SimulatedFleet(hosts, clients // 2, executes=False, interval_s=interval_s)
                last.add_clients(clients // 2, ARRIVAL_S / 2)
                last.loop.run(ARRIVAL_S / 2 + 3)
            texts.append(f"{compared} compared: {last.imbalance():.2f}")
        figures[f"fullest host, reports every {interval_s:g} s"] = "; ".join(texts)
    assert last is not None
    return Result(last, figures, {})


@scenario
def autoscaling(hosts: int, clients: int) -> Result:
    """Begin with a tenth of the clients and hosts. All clients come in three minutes, and most of them go again."""
    fleet = SimulatedFleet(hosts, clients, active=hosts // 10)
    rules = ScalingRules(hosts // 10, hosts, shrink_after_s=30.0)
    state, coming = ScalingState(hosts // 10), 0

    def arrive() -> None:
        nonlocal coming
        coming -= 1
        fleet.add_host()

    def step() -> None:
        nonlocal state, coming
        state = decide(state, fleet.registry.members(), fleet.loop.now, rules)
        missing = state.hosts - len(fleet.alive) - coming
        for _ in range(missing):
            coming += 1
            fleet.loop.call_at(fleet.loop.now + HOST_ARRIVAL_S, arrive)
        if missing < 0:
            fewest = sorted(fleet.serving, key=lambda host: host.sessions)
            leaving = len(fleet.alive) - len(fleet.serving)
            fleet.retire(fewest[: max(0, -missing - leaving)])
        fleet.loop.call_at(fleet.loop.now + 1.0, step)

    fleet.loop.call_at(1.0, step)
    fleet.add_clients(clients // 10, 20)
    fleet.loop.run(30)
    fleet.add_clients(clients - clients // 10, 180)
    fleet.loop.run(400)
    middle = f"{len(fleet.alive)} hosts, fullest {fleet.imbalance():.2f} times the mean"
    fleet.remove_clients(clients * 8 // 10, 60)
    fleet.loop.run(600)
    figures = {
        "latency": percentiles(fleet.latencies),
        "with all clients": middle,
        "at the end": f"{len(fleet.alive)} hosts",
        "largest number of hosts": str(max(fleet.history.hosts)),
    }
    return Result(fleet, {**figures, "lost": lost(fleet)}, {30: "more clients", 400: "fewer clients"})
