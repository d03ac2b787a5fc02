"""Scaling of a fleet under load: `python -m tests.benchmark.fleet.scaling`.

It starts a fleet of 1 to 3 hosts on this machine, whose autoscaler is that of Ray with its fake provider of hosts.
Clients come until the fleet has 3 hosts and takes no more of them. Most leave then, until it has 1 host again.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import nnhal
from nnhal.builder import ModelBuilder
from nnhal.types import FusedActivationFunc, Operand, OperandType, OperationType
from tests.benchmark.fleet.leftovers import MARK, wait_for_end

HOSTS = 3
_WIDTH = 2048
_ROWS = 1024
_WAVE = 8
"""Clients that come at once."""
_MOST_CLIENTS = 160
_SHRINK_AFTER_S = 10
_TIMEOUT_S = 240.0
_PAUSES = 20.0
"""Pause of the clients that stay after each call, as a multiple of its time: their work needs one host."""


def heavy_model() -> Any:
    """Return a model whose execution takes some tenths of a second."""
    builder = ModelBuilder()
    values = np.random.default_rng(1).standard_normal
    x = builder.input(OperandType.TENSOR_FLOAT32, [_ROWS, _WIDTH], name="x")
    for width in (_WIDTH, 8):
        weights = values((width, _WIDTH)).astype(np.float32) / _WIDTH
        result = Operand(OperandType.TENSOR_FLOAT32, (_ROWS, width))
        arguments = (x, weights, np.zeros(width, np.float32), FusedActivationFunc.NONE)
        x = builder.add(OperationType.FULLY_CONNECTED, *arguments, output=result)
    builder.output(x, name="y")
    return builder.build()


@dataclass
class Load:
    """Calls of all clients. Thread safe.

    Attributes:
        calls: number of answers.
        problems: wrong or missing answers.
        members: ids of the members that have answered.
    """

    calls: int = 0
    problems: list[str] = field(default_factory=list)
    members: set[str] = field(default_factory=set)


class Clients:
    """Threads that execute a model until they are stopped. Close them when done.

    Args:
        address: address of a member.
    """

    def __init__(self, address: str) -> None:
        self.load = Load()
        self._address = address
        self._model = heavy_model()
        self._input = np.random.default_rng(2).standard_normal((_ROWS, _WIDTH)).astype(np.float32)
        self._threads: list[tuple[threading.Thread, threading.Event]] = []
        self._lock = threading.Lock()
        self._pauses = 0.0

    @property
    def count(self) -> int:
        """Number of clients."""
        return len(self._threads)

    def come(self) -> None:
        """Start a wave of clients.

        Raises:
            HalError: the fleet takes no more.
        """
        for _ in range(_WAVE):
            device = nnhal.connect(self._address, timeout=60)
            stop = threading.Event()
            thread = threading.Thread(target=self._run, args=(device, stop))
            thread.start()
            self._threads.append((thread, stop))

    def leave_but(self, number: int) -> None:
        """Have all clients leave but some, which pause between their calls from now on."""
        self._pauses = _PAUSES
        leaving, self._threads = self._threads[number:], self._threads[:number]
        for _, stop in leaving:
            stop.set()
        for thread, _ in leaving:
            thread.join()

    def _run(self, device: nnhal.Device, stop: threading.Event) -> None:
        with device:
            try:
                prepared = device.prepare(self._model, cache=True).result(60)
            except (nnhal.HalError, TimeoutError) as error:
                self._note(device, f"not prepared: {error}")
                return
            expected, taken_s = None, 0.0
            while not stop.wait(self._pauses * taken_s):
                problem, start = "", time.monotonic()
                try:
                    output = prepared.execute([self._input], deadline=60)[0]
                    expected = output if expected is None else expected
                    problem = "" if np.allclose(output, expected, atol=1e-4) else "wrong answer"
                except nnhal.HalError as error:
                    problem = str(error)
                taken_s = time.monotonic() - start
                self._note(device, problem)

    def _note(self, device: nnhal.Device, problem: str) -> None:
        with self._lock:
            self.load.calls += 1
            self.load.members.add(device._connection.member)
            if problem:
                self.load.problems.append(problem)

    def close(self) -> None:
        """Have all clients leave."""
        self.leave_but(0)


@contextmanager
def scaled_fleet(folder: Path) -> Iterator[Any]:
    """Run a fleet of 1 to 3 hosts, and yield the connection to it."""
    from nnhal_fleet.ray_cluster.connection import joined_cluster, start_fleet
    from nnhal_fleet.ray_cluster.local_cluster import LocalCluster
    from nnhal_fleet.ray_cluster.options import FleetOptions
    from nnhal_fleet.rolling import is_complete, wait_for

    cluster = LocalCluster(0, HOSTS)
    try:
        with joined_cluster(cluster.address):
            serve = ("--log-level", "warning", "--backends", "CpuAcc")
            fleet = start_fleet(FleetOptions("127.0.0.1:0", str(folder), serve, 1, HOSTS, _SHRINK_AFTER_S))
            wait_for(fleet, is_complete, _TIMEOUT_S, "no fleet")
            yield fleet
            fleet.stop()
    finally:
        cluster.close()


class Story:
    """Events with their times, printed as they happen.

    Args:
        fleet: the connection to the fleet.
    """

    def __init__(self, fleet: Any) -> None:
        self._fleet = fleet
        self._start = time.monotonic()

    def tell(self, text: str) -> None:
        """Print an event."""
        print(f"{time.monotonic() - self._start:5.0f} s: {text}", flush=True)

    def wait(self, is_done: Callable[[Mapping[str, Any]], bool], what: str) -> None:
        """Wait until the fleet is in some state.

        Raises:
            FleetError: it does not get there.
        """
        from nnhal_fleet.rolling import wait_for

        status = wait_for(self._fleet, is_done, _TIMEOUT_S, what)
        self.tell(f"{what}; {status['scaling']['reason']}")


def serving(number: int) -> Callable[[Mapping[str, Any]], bool]:
    """Return the condition that a number of members serve and know each other, and no others exist."""
    from nnhal_fleet.rolling import is_complete

    return lambda status: is_complete(status) and len(status["hosts"]) == number == status["scaling"]["hosts"]


def fill(clients: Clients, story: Story) -> None:
    """Let clients come until the fleet takes no more.

    Raises:
        RuntimeError: it takes very many.
    """
    while clients.count < _MOST_CLIENTS:
        try:
            clients.come()
        except nnhal.HalError as error:
            story.tell(f"{clients.count} clients, the next one is refused: {error}")
            return
        time.sleep(5)
    raise RuntimeError(f"{clients.count} clients, and none was refused")


def run(folder: Path) -> Load:
    """Let a fleet grow and shrink under load, and return the calls."""
    with scaled_fleet(folder) as fleet:
        clients = Clients(fleet.status()["members"][0]["address"])
        story = Story(fleet)
        try:
            for number in range(2, HOSTS + 1):
                clients.come()
                story.tell(f"{clients.count} clients")
                story.wait(serving(number), f"{number} hosts")
            fill(clients, story)
            clients.leave_but(HOSTS)
            story.tell(f"{HOSTS} clients stay")
            story.wait(serving(1), "1 host")
        finally:
            clients.close()
    return clients.load


def main() -> int:
    """Run the command."""
    with tempfile.TemporaryDirectory(prefix="nnhal-fleet-", ignore_cleanup_errors=True) as folder:
        os.environ[MARK] = folder
        load = run(Path(folder))
        left = wait_for_end(Path(folder))
    print(f"{load.calls} calls at {len(load.members)} members, {len(load.problems)} wrong or failed")
    for text in [*load.problems[:10], *left]:
        print(text)
    return int(bool(load.problems) or bool(left) or len(load.members) < HOSTS)


if __name__ == "__main__":
    sys.exit(main())
