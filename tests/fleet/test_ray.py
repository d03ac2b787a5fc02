"""Fleets on a cluster of Ray with three hosts on this machine. Needs nnhal[fleet]."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

import nnhal
from nnhal_tools.demo import digits
from tests.benchmark.fleet.leftovers import MARK, leftovers
from tests.concurrency import wait_until

ROOT = Path(__file__).resolve().parents[2]
THREADS = 4

pytest.importorskip("ray", reason="needs nnhal[fleet]")


class LocalFleet:
    """Fleet that `nnhal fleet` runs in a local cluster, with a state directory of its own.

    Args:
        folder: the state directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str) -> str:
        """Run a command, and return its output."""
        command = [sys.executable, "-m", "nnhal_tools", "fleet", *arguments, "--state-dir", str(self.folder)]
        environment = {**os.environ, MARK: str(self.folder)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def members(self) -> dict[str, dict[str, object]]:
        """Return the records of the members by their ids."""
        return {member["id"]: member for member in json.loads(self.run("status", "--json"))["members"]}

    @property
    def target(self) -> str:
        """Target of `connect`: the head of the cluster."""
        address: str = json.loads((self.folder / "fleet" / "cluster.json").read_text())["address"]
        return f"ray://{address}"

    def kill_host(self, id_: str) -> None:
        """Kill all processes of the host of a member at once: Ray's, the actor, and those of the service."""
        option = f"unix:{self.folder}/fleet/{id_}/admin.sock"
        service = next(each for each in psutil.process_iter(["cmdline"]) if option in (each.info["cmdline"] or ()))
        raylet = next(each for each in service.parents() if each.name() == "raylet")
        processes = [raylet, *raylet.children(recursive=True)]
        for process in processes:
            process.kill()
        assert wait_until(lambda: not any(each.is_running() for each in processes[1:]), 60)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """Three hosts. The last test kills one of them."""
    fleet = LocalFleet(tmp_path_factory.mktemp("ray"))
    try:
        fleet.run("up", "--hosts", "3")
        yield fleet
    finally:
        fleet.run("down")
    assert wait_until(lambda: not leftovers(fleet.folder), 60), leftovers(fleet.folder)


@pytest.mark.slow
def test_the_commands(fleet: LocalFleet) -> None:
    members = fleet.members()
    first, *others = members
    assert first.startswith("host-")
    with nnhal.connect(fleet.target, timeout=60) as device:
        assert device._connection.member in members
        assert len(device._connection.members) == len(others), "the members know each other from the start"
    fleet.run("drain", first)
    assert fleet.members()[first]["draining"]
    with nnhal.connect(str(members[first]["address"]), timeout=60) as device:
        assert device._connection.member in others
    fleet.run("resume", first)


@pytest.mark.nightly
def test_replacement_of_all_services(fleet: LocalFleet) -> None:
    before = fleet.members()
    fleet.run("restart")
    after = fleet.members()
    assert {id_: member["generation"] for id_, member in after.items()} == dict.fromkeys(before, 2)


@pytest.mark.slow
def test_no_answer_is_lost_when_a_host_is_killed(fleet: LocalFleet) -> None:
    images = digits.scale_pixels(digits.load_images()[0])[:1]
    stop = threading.Event()
    with nnhal.connect(fleet.target, timeout=60) as device:
        prepared = device.prepare(digits.MODEL, cache=True).result(60)
        expected = prepared.execute([images])[0]

        def call() -> int:
            calls = 0
            while not stop.is_set():
                np.testing.assert_allclose(prepared.execute([images], deadline=60)[0], expected, atol=1e-5)
                calls += 1
            return calls

        with ThreadPoolExecutor(THREADS) as pool:
            counts = [pool.submit(call) for _ in range(THREADS)]
            try:
                killed = device._connection.member
                fleet.kill_host(killed)
                assert wait_until(lambda: device._connection.member != killed, 60)
            finally:
                stop.set()
            assert all(count.result() for count in counts)
        np.testing.assert_allclose(prepared.execute([images])[0], expected, atol=1e-5)


@pytest.mark.nightly
def test_no_answer_is_lost_when_hosts_services_actors_and_the_head_are_killed(tmp_path: Path) -> None:
    """In a process of its own, which ends with Ray's driver after the head was killed."""
    kills = os.environ.get("NNHAL_FLEET_KILLS", "6")
    output = run_benchmark(
        "tests.benchmark.fleet", "--kills", kills, "--roll", "--picture", str(tmp_path / "fleet.svg")
    )
    assert "0 wrong or lost" in output


@pytest.mark.nightly
def test_a_fleet_grows_and_shrinks_with_its_load() -> None:
    output = run_benchmark("tests.benchmark.fleet.scaling")
    assert "calls at 3 members, 0 wrong or failed" in output and "the fleet takes no new clients" in output


def run_benchmark(module: str, *options: str) -> str:
    """Run a benchmark that checks its results, and return its output."""
    command = [sys.executable, "-m", module, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
