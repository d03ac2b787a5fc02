"""A fleet on a cluster of Ray with three hosts on this machine. Needs nnhal[fleet]."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nnhal
from tests.benchmark.fleet.leftovers import leftovers
from tests.concurrency import wait_until

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("ray", reason="needs nnhal[fleet]")
pytestmark = pytest.mark.nightly


class Commands:
    """`nnhal fleet` with a state directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str) -> str:
        """Run a command, and return its output."""
        command = [sys.executable, "-m", "nnhal_tools", "fleet", *arguments, "--state-dir", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def members(self) -> dict[str, dict[str, object]]:
        """Return the records of the members by their ids."""
        return {member["id"]: member for member in json.loads(self.run("status", "--json"))["members"]}


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(tmp_path)
    try:
        commands.run("up", "--hosts", "2")
        yield commands
    finally:
        commands.run("down")
    assert wait_until(lambda: not leftovers(tmp_path), 60), leftovers(tmp_path)


def test_the_commands(commands: Commands) -> None:
    first, second = sorted(commands.members())
    assert first.startswith("host-1") and second.startswith("host-2")
    cluster = json.loads((commands.folder / "fleet" / "cluster.json").read_text())["address"]
    with nnhal.connect(f"ray://{cluster}", timeout=60) as device:
        assert device._connection.member in (first, second)
        assert len(device._connection.members) == 1, "the members know each other from the start"
    commands.run("drain", "host-1")
    assert commands.members()[first]["draining"]
    with nnhal.connect(str(commands.members()[first]["address"]), timeout=60) as device:
        assert device._connection.member == second
    commands.run("resume", "host-1")
    commands.run("restart")
    assert [member["generation"] for member in commands.members().values()] == [2, 2]


def test_no_answer_is_lost_when_hosts_services_actors_and_the_head_are_killed(tmp_path: Path) -> None:
    """In a process of its own, which ends with Ray's driver after the head was killed."""
    kills = os.environ.get("NNHAL_FLEET_KILLS", "6")
    output = run_benchmark(
        "tests.benchmark.fleet", "--kills", kills, "--roll", "--picture", str(tmp_path / "fleet.svg")
    )
    assert "0 wrong or lost" in output


def test_a_fleet_grows_and_shrinks_with_its_load() -> None:
    output = run_benchmark("tests.benchmark.fleet.scaling")
    assert "calls at 3 members, 0 wrong or failed" in output and "the fleet takes no new clients" in output


def run_benchmark(module: str, *options: str) -> str:
    """Run a benchmark that checks its results, and return its output."""
    command = [sys.executable, "-m", module, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
