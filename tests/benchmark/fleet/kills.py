"""Kills in a fleet under load: hosts, services, workers and the head of Ray. Shows that every answer arrives.

`python -m tests.benchmark.fleet` starts a cluster of three hosts on this machine and 8 clients, kills one host, and
draws the latency over time. `--kills 50` kills hosts, services and workers in turns, and the head at the end.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import nnhal
from nnhal_fleet.ray_cluster.local_cluster import descendants
from nnhal_tools.demo import digits
from tests.benchmark.fleet.leftovers import MARK, wait_for_end

CLIENTS = 8
HOSTS = 3
_PAUSE_S = 4.0
"""Seconds between two kills, in which the fleet starts a service or a host again."""
_READY_S = 120.0


@dataclass(frozen=True)
class Call:
    """An execution of a client.

    Attributes:
        client: number of the client.
        start: time at which it began, in seconds since 1970.
        end: time of its answer.
        session: the session that answered.
        problem: why the answer is wrong or missing, or "".
    """

    client: int
    start: float
    end: float
    session: str
    problem: str = ""


@dataclass(frozen=True)
class Kill:
    """A kill, or the end of a replacement: its time, and what was done."""

    at: float
    what: str


# ---- The clients, in a process of their own ------------------------------------------------------------------


def run_clients(address: str, output: TextIO) -> None:
    """Run a model from all clients until stdin is closed, and write each call as a line."""
    stop = threading.Event()
    lock = threading.Lock()
    threads = [
        threading.Thread(target=_run_client, args=(number, address, stop, output, lock)) for number in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()


def _run_client(number: int, address: str, stop: threading.Event, output: TextIO, lock: threading.Lock) -> None:
    images = digits.scale_pixels(digits.load_images()[0])
    with nnhal.connect(address, timeout=60, client_name=f"client-{number}") as device:
        prepared = device.prepare(digits.MODEL, cache=True).result(60)
        expected = prepared.execute([images[:1]])[0]
        while not stop.is_set():
            start, problem = time.time(), ""
            try:
                if not np.allclose(prepared.execute([images[:1]], deadline=60)[0], expected, atol=1e-5):
                    problem = "wrong answer"
            except nnhal.HalError as error:
                problem = str(error)
            call = (number, start, time.time(), device._connection.session.hex()[:8], problem)
            with lock:
                output.write(json.dumps(call) + "\n")
            time.sleep(0.01)
    with lock:
        output.flush()


# ---- The fleet ---------------------------------------------------------------------------------------------


class Arena:
    """A cluster with a fleet, in this process. Close it when done.

    Attributes:
        fleet: the connection to the fleet.
    """

    def __init__(self, folder: Path) -> None:
        from nnhal_fleet.ray_cluster.connection import joined_cluster, start_fleet
        from nnhal_fleet.ray_cluster.local_cluster import LocalCluster
        from nnhal_fleet.ray_cluster.options import FleetOptions
        from nnhal_fleet.rolling import is_complete, wait_for

        self.folder = folder
        self.cluster = LocalCluster(0)
        self.nodes = [self.cluster.add_host() for _ in range(HOSTS)]
        self._dead: list[Any] = []
        self._joined = joined_cluster(self.cluster.address)
        self._joined.__enter__()
        self.fleet = start_fleet(FleetOptions("127.0.0.1:0", str(folder), ("--log-level", "warning")))
        wait_for(self.fleet, lambda status: len(status["hosts"]) == HOSTS and is_complete(status), _READY_S, "no fleet")

    def members(self) -> Sequence[dict[str, Any]]:
        """Return the records of the members."""
        members: Sequence[dict[str, Any]] = self.fleet.status()["members"]
        return members

    def wait_until_complete(self) -> None:
        """Wait until all hosts serve."""
        from nnhal_fleet.rolling import wait_for

        def is_complete(status: Mapping[str, Any]) -> bool:
            return len(status["members"]) == len(status["hosts"]) == len(self.nodes)

        wait_for(self.fleet, is_complete, _READY_S, "some members do not serve")

    def replace_services(self) -> list[Kill]:
        """Replace all services, one after the other. Return when each served again."""
        from nnhal_fleet.rolling import replace_services

        done: list[Kill] = []
        ids = self.fleet.status()["hosts"]
        replace_services(self.fleet, ids, _READY_S, lambda id_: done.append(Kill(time.time(), f"{id_} replaced")))
        return done

    def kill_host(self, busiest: dict[str, Any]) -> str:
        """Kill all processes of a host at once."""
        from nnhal_fleet.ray_cluster.options import member_id

        node = next(node for node in self.nodes if busiest["id"].endswith(member_id("", node.node_id)))
        raylet = node.all_processes["raylet"][0].process.pid
        for pid in [raylet, *descendants(raylet)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._dead.append(node)
        return f"host {busiest['id']} killed"

    def replace_hosts(self) -> None:
        """Start a host for each that was killed."""
        for node in self._dead:
            self.cluster.remove_host(node)
            self.nodes.remove(node)
            self.nodes.append(self.cluster.add_host())
        self._dead.clear()

    def kill_service(self, busiest: dict[str, Any]) -> str:
        """Kill the supervisor of a service."""
        os.kill(self.fleet.host_state(busiest["id"])["service"], signal.SIGKILL)
        return f"service {busiest['id']} killed"

    def kill_actor(self, busiest: dict[str, Any]) -> str:
        """Kill the actor of a host, with which its service ends."""
        os.kill(self.fleet.host_state(busiest["id"])["actor"], signal.SIGKILL)
        return f"actor {busiest['id']} killed"

    def kill_head(self, _: dict[str, Any]) -> str:
        """Kill Ray's head for good."""
        self.cluster.kill_head()
        return "the head of Ray killed"

    def close(self) -> None:
        """End everything."""
        self._joined.__exit__(None, None, None)
        self.cluster.close()


@contextmanager
def clients(address: str, folder: Path) -> Iterator[Path]:
    """Run the clients in a process of their own. Yield the file with their calls, which is complete at the end."""
    file = folder / "calls"
    with file.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmark.fleet", "--clients", address],
            stdin=subprocess.PIPE,
            stdout=output,
        )
    try:
        yield file
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(120)


def run(kills: int, folder: Path, *, rolls: bool = False) -> tuple[list[Call], list[Kill], list[str]]:
    """Kill things under load, and return all calls, the kills, and the processes that are left at the end.

    Args:
        kills: number of kills.
        folder: folder for all files.
        rolls: whether to replace all services in order, too.
    """
    os.environ[MARK] = str(folder)
    arena = Arena(folder)
    done: list[Kill] = []
    try:
        address = arena.members()[0]["address"]
        with clients(address, folder) as file:
            wait_for_clients(arena)
            for number in range(kills):
                busiest = max(arena.members(), key=lambda member: member["sessions"])
                how = (arena.kill_host, arena.kill_service, arena.kill_actor)[number % 3]
                at = time.time()
                done.append(Kill(at, how(busiest)))
                print(f"{number + 1}: {done[-1].what}", flush=True)
                time.sleep(_PAUSE_S)
                arena.replace_hosts()
                arena.wait_until_complete()
            if rolls:
                done += arena.replace_services()
            if kills > 1:
                done.append(Kill(time.time(), arena.kill_head({})))
                print(done[-1].what, flush=True)
                time.sleep(_PAUSE_S)
    finally:
        arena.close()
    left = wait_for_end(folder)
    return [Call(*json.loads(line)) for line in file.read_text().splitlines()], done, left


def wait_for_clients(arena: Arena) -> None:
    """Wait until all clients have a session."""
    end = time.monotonic() + _READY_S
    while sum(member["sessions"] for member in arena.members()) < CLIENTS and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1)


# ---- The result --------------------------------------------------------------------------------------------


def gaps(calls: Sequence[Call], kills: Sequence[Kill]) -> list[float]:
    """Return, for each kill and each client that changed its session for it, the seconds to the next answer."""
    found = []
    for number in range(CLIENTS):
        own = [call for call in calls if call.client == number]
        for before, after in pairwise(own):
            at = max((kill.at for kill in kills if kill.at <= after.end), default=None)
            if before.session != after.session and at is not None:
                found.append(after.end - max(at, after.start))
    return found


def draw(calls: Sequence[Call], kills: Sequence[Kill], path: Path) -> None:
    """Draw the latency of all calls over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    start = min(call.start for call in calls)
    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for number in range(CLIENTS):
        own = [call for call in calls if call.client == number]
        axes.plot([call.end - start for call in own], [(call.end - call.start) * 1e3 for call in own], ".", ms=2)
    for kill in kills:
        axes.axvline(kill.at - start, color="red", lw=1)
        axes.text(kill.at - start, axes.get_ylim()[1], f" {kill.what}", color="red", fontsize=8)
    axes.set(yscale="log", xlabel="time in s", ylabel="latency in ms", title=f"{CLIENTS} clients, {HOSTS} hosts")
    figure.savefig(path)
    print(f"picture: {path}")


def report(calls: Sequence[Call], kills: Sequence[Kill], left: Sequence[str]) -> int:
    """Print the result, and return the exit code."""
    problems = [call for call in calls if call.problem]
    start = min(call.start for call in calls)
    times = [call.end - call.start for call in calls]
    found = gaps(calls, kills)
    print(f"{len(calls)} calls, {len(problems)} wrong or lost; latency p50 {np.median(times) * 1e3:.1f} ms")
    if found:
        p50, p99 = np.percentile(found, [50, 99])
        print(f"{len(kills)} kills and replacements, {len(found)} moves of clients to other sessions")
        print(f"next answer after p50 {p50:.2f} s, p99 {p99:.2f} s, at most {max(found):.2f} s")
    for text in [
        *(
            f"client {call.client}, {call.start - start:.0f} to {call.end - start:.0f} s: {call.problem}"
            for call in problems
        ),
        *left,
    ]:
        print(text)
    return int(bool(problems or left or not found))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--roll", action="store_true", help="replace all services in order, after the kills")
    parser.add_argument("--picture", type=Path, default=Path("build/fleet.svg"))
    parser.add_argument("--clients", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.clients:
        run_clients(options.clients, sys.stdout)
        return 0
    with tempfile.TemporaryDirectory(prefix="nnhal-fleet-", ignore_cleanup_errors=True) as folder:
        calls, kills, left = run(options.kills, Path(folder), rolls=options.roll)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    draw(calls, kills, options.picture)
    return report(calls, kills, left)
