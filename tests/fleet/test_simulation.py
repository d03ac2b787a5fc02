"""Simulation of a fleet, which runs the product's placement: no call is lost, and the load stays balanced."""

from random import Random

import pytest

from tests.benchmark.simulation.event_loop import EventLoop
from tests.benchmark.simulation.fleet import SimulatedFleet
from tests.benchmark.simulation.host import SimulatedHost
from tests.benchmark.simulation.picture import draw


@pytest.mark.parametrize("is_silent", [False, True])
def test_no_call_is_lost_when_hosts_die(is_silent: bool) -> None:
    fleet = SimulatedFleet(12, 360)
    fleet.add_clients(360, 5)
    fleet.loop.run(8)
    assert fleet.is_consistent() and fleet.imbalance() < 1.5
    fleet.kill(fleet.hosts[:3], is_silent=is_silent)
    fleet.loop.run(45)
    fleet.world.think_s = 1e9
    fleet.loop.run(120)
    assert fleet.world.started == fleet.world.answered > 1000
    assert fleet.is_consistent() and fleet.imbalance() < 1.5
    # a silent host is noticed by a lack of answers, a dead service at once
    assert len(fleet.returns) > 40 and (max(fleet.returns) > 10) == is_silent
    assert draw(fleet.history, {8: "death"}).count("<polyline") == 5


def test_a_rolling_restart_loses_no_call() -> None:
    fleet = SimulatedFleet(4, 80)
    fleet.add_clients(80, 5)
    fleet.loop.run(8)
    done: list[float] = []
    fleet.roll(fleet.hosts, 1, lambda: done.append(fleet.loop.now))
    fleet.loop.run(90)
    fleet.world.think_s = 1e9
    fleet.loop.run(120)
    assert done and [host.generation for host in fleet.hosts] == [1] * 4
    assert fleet.world.started == fleet.world.answered and fleet.is_consistent()


def test_work_of_a_host_waits_for_its_cpus() -> None:
    loop = EventLoop()
    ended: list[float] = []
    host = SimulatedHost(loop, 0, 2, Random(1))
    for _ in range(3):
        host.submit(1.0, lambda: ended.append(loop.now), lambda: None)
    assert host.outstanding == 3
    loop.run(5)
    assert ended == [1.0, 1.0, 2.0] and host.outstanding == 0
