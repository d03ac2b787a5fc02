"""Pause of clients when their service is killed: time from the kill to the next answer, on each path.

`python -m tests.benchmark.recovery` starts `nnhal serve`, and a client process for each combination of client
(synchronous, asyncio), transport (gRPC, shared memory) and call (execute, burst, submit). Each executes a cached model
in a loop and checks each answer. If the service has worker processes, a random one is killed, and its supervisor
replaces it; otherwise the service is killed and started again. The pause of a client of the killed worker is the
longest time after the kill without an answer. Aims on two idle cores, for a service that is back within 0.25 s: 150 ms
at the median, and 1 s for the 99th percentile.

The last lines compare calls of clients of the other workers, from the kill to the recovery of all clients, with the
calls of the same paths at other times. Aim: a 99th percentile within twice the usual one.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

import nnhal
import nnhal.aio
from nnhal import ModelBuilder
from nnhal.client.core.arrays import Outputs
from nnhal.client.core.session import Transport
from nnhal.types import AnyArray, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op

KILLS, QUICK_KILLS = 50, 8
CALLS = ("execute", "burst", "submit")
PATHS = [
    f"{client} {transport} {call}" for client in ("sync", "asyncio") for transport in ("grpc", "shm") for call in CALLS
]
TIMEOUT_S = 60.0
PAUSE_S = 0.002
"""Seconds between two executions of a client, so that the machine is not overloaded by the clients."""
SETTLE_S = 0.3
"""Seconds after a kill until each answer comes from the next service."""
SUBMITTED = 3
"""Executions of a burst in progress at once, for the call "submit"."""
SIZE = 10_000
WEIGHTS = np.arange(SIZE, dtype=np.float32)
_STARTED = re.compile(r"worker-started worker=(\d+) pid=(\d+)")
"""Line of the log of a supervisor."""
BETWEEN_S = (0.5, 1.5)
"""Shortest and longest time between the recovery of all clients and the next kill."""


def model() -> Model:
    """Return a model that adds constants to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [SIZE])
    b.output(b.add(Op.ADD, x, WEIGHTS, 0, output=x.description))
    return b.build()


# ---- Clients --------------------------------------------------------------------------------------------


def check(outputs: Sequence[AnyArray], number: int, start: float, session: bytes) -> None:
    """Check an answer, and print when it came, how many seconds it took, and which worker it came from.

    Raises:
        RuntimeError: it is wrong.
    """
    now = time.monotonic()
    if not np.array_equal(outputs[0], WEIGHTS + number):
        raise RuntimeError("an answer is wrong")
    print(now, now - start, session[-1], flush=True)  # the token of a session ends with the number of its worker
    time.sleep(PAUSE_S)


def run_sync_client(target: str, transport: Transport, call: str) -> None:
    """Execute for ever."""
    with nnhal.connect(target, transport=transport, timeout=TIMEOUT_S) as device:
        prepared = device.prepare(model(), cache=True).result(TIMEOUT_S)
        burst = prepared.burst()
        execute: Callable[[Sequence[AnyArray]], Outputs] = prepared.execute if call == "execute" else burst.execute
        for number in itertools.cycle(range(1000)):
            x, start = np.full(SIZE, number, np.float32), time.monotonic()
            if call != "submit":
                check(execute([x]), number, start, prepared._remote.connection.session)
                continue
            futures = [burst.submit([x + i]) for i in range(SUBMITTED)]
            results = [future.result(TIMEOUT_S) for future in futures]
            for i, outputs in enumerate(results):
                check(outputs, number + i, start, prepared._remote.connection.session)


async def run_asyncio_client(target: str, transport: Transport, call: str) -> None:
    """Execute for ever."""
    async with nnhal.aio.connect(target, transport=transport, timeout=TIMEOUT_S) as device:
        prepared = await device.prepare(model(), cache=True)
        burst = await prepared.burst()
        for number in itertools.cycle(range(1000)):
            x, start = np.full(SIZE, number, np.float32), time.monotonic()
            if call == "execute":
                results = [await prepared.execute([x])]
            else:
                count = SUBMITTED if call == "submit" else 1
                results = await asyncio.gather(*(burst.submit([x + i]) for i in range(count)))
            for i, outputs in enumerate(results):
                check(outputs, number + i, start, prepared._remote.connection.session)


def run_client(target: str, path: str) -> None:
    """Run the client of a path for ever."""
    client, transport, call = path.split()
    chosen: Transport = "grpc" if transport == "grpc" else "auto"
    if client == "sync":
        run_sync_client(target, chosen, call)
    else:
        asyncio.run(run_asyncio_client(target, chosen, call))


class Answer(NamedTuple):
    """One answer that a client has got.

    Attributes:
        time: when it came, in seconds of `time.monotonic`.
        duration_s: seconds that the call took.
        worker: number of the worker that it came from.
    """

    time: float
    duration_s: float
    worker: int


class Kill(NamedTuple):
    """One kill.

    Attributes:
        begin: its time.
        end: time by which all clients had recovered.
        worker: number of the worker that was killed; -1 if it was the whole service.
    """

    begin: float
    end: float
    worker: int


@dataclass(frozen=True)
class Client:
    """Process of a client. Its answers are in a file."""

    path: str
    process: subprocess.Popen[bytes]
    times: Path

    @staticmethod
    def start(folder: Path, target: str, path: str) -> "Client":
        """Start a client."""
        times = folder / path.replace(" ", "-")
        command = [sys.executable, "-m", "tests.benchmark.recovery", "--client", target, path]
        with times.open("wb") as output:
            return Client(path, subprocess.Popen(command, stdout=output), times)

    def answers(self) -> list[Answer]:
        """Return its answers so far."""
        lines = [line.split() for line in self.times.read_text().split("\n")[:-1]]
        return [Answer(float(when), float(duration), int(worker)) for when, duration, worker in lines]

    def has_answered_since(self, when: float) -> bool:
        """Return whether it had an answer after a time.

        Raises:
            RuntimeError: the client has failed.
        """
        if self.process.poll() is not None:
            raise RuntimeError(f"the client of {self.path} has ended with status {self.process.returncode}")
        with self.times.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 200))
            lines = file.read().split(b"\n")[:-1]
        return bool(lines) and float(lines[-1].split()[0]) > when

    def stop(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Measurement:
    """Durations in milliseconds.

    Attributes:
        pauses: longest times without an answer after a kill, of clients of the killed worker.
        beside: calls of clients of other workers, from a kill to the recovery of all clients.
        usual: calls at other times.
    """

    pauses: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    usual: list[float] = field(default_factory=list)

    def add(self, answers: Sequence[Answer], kills: Sequence[Kill]) -> None:
        """Add the answers of one client."""
        times = [answer.time for answer in answers]
        position = 0
        for kill in kills:
            begin, end = bisect_right(times, kill.begin), bisect_right(times, kill.end)
            self.usual.extend(answer.duration_s * 1e3 for answer in answers[position:begin])
            position = end
            if begin > 0 and kill.worker not in {-1, answers[begin - 1].worker}:
                self.beside.extend(answer.duration_s * 1e3 for answer in answers[begin:end])
            else:
                self.pauses.append(max(b - a for a, b in pairwise([kill.begin, *times[begin:end]])) * 1e3)


# ---- Service --------------------------------------------------------------------------------------------


class KillableService:
    """`nnhal serve` on a fixed address.

    Args:
        folder: place of its cache.
        options: more options of `nnhal serve`.
    """

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.target = f"127.0.0.1:{server.getsockname()[1]}"
        self._environment = {**os.environ, "NNHAL_CACHE_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
        self._command = [*options, "--listen", self.target, "--log-level", "info"]
        self._log = folder.with_suffix(".log")
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )
        assert process.stdout is not None
        if not process.stdout.readline().startswith("listening on "):
            process.kill()
            raise RuntimeError("the service does not start")
        return process

    def kill(self) -> tuple[float, int]:
        """Kill a worker, or the service, which is then started again. Return the time, and the worker or -1."""
        started = {int(pid): int(slot) for slot, pid in _STARTED.findall(self._log.read_text())}
        workers = [pid for pid in _descendants(self._process.pid) if pid in started]
        victim = random.choice(workers) if workers else self._process.pid
        when = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        if not workers:
            self.close()
            self._process = self._start()
        return when, started.get(victim, -1)

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _descendants(pid: int) -> Iterator[int]:
    """Yield the child processes of a process, and theirs."""
    for entry in Path("/proc", str(pid), "task").glob("*/children"):
        for child in map(int, entry.read_text().split()):
            yield child
            yield from _descendants(child)


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("a client does not recover")
        time.sleep(0.02)


def measure(kills: int, paths: Sequence[str], options: Sequence[str]) -> dict[str, Measurement]:
    """Return the measurement of each path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        service = KillableService(folder / "cache", options)
        clients = [Client.start(folder, service.target, path) for path in paths]
        done: list[Kill] = []
        try:
            _wait(lambda: all(client.has_answered_since(0) for client in clients))
            for _ in range(kills):
                time.sleep(random.uniform(*BETWEEN_S))
                killed, worker = service.kill()
                time.sleep(SETTLE_S)  # until then, an answer may come from before the kill
                _wait(lambda: all(client.has_answered_since(killed + SETTLE_S) for client in clients))  # noqa: B023
                done.append(Kill(killed, time.monotonic(), worker))
        finally:
            for client in clients:
                client.stop()
            service.close()
        measured = {path: Measurement() for path in paths}
        for client in clients:
            measured[client.path].add(client.answers(), done)
        return measured


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))] if values else math.nan


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills instead of {KILLS}")
    parser.add_argument("--kills", type=int, default=0, help="number of kills")
    parser.add_argument("--path", action="append", choices=PATHS, help="a path to measure; by default all at once")
    parser.add_argument("--workers", type=int, default=2, help="workers of `nnhal serve` (default 2)")
    parser.add_argument("--serve", default="", help="command that serves, instead of `nnhal serve`; takes its options")
    parser.add_argument("--client", nargs=2, metavar=("TARGET", "PATH"), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the pauses as JSON")
    options = parser.parse_args(arguments)
    if options.client:
        run_client(*options.client)
    serve = options.serve.split() or [
        sys.executable,
        "-m",
        "nnhal_tools.cli",
        "serve",
        "--workers",
        str(options.workers),
    ]
    kills = options.kills or (QUICK_KILLS if options.quick else KILLS)
    measured = measure(kills, options.path or PATHS, serve)
    if options.json:
        print(json.dumps({path: asdict(measurement) for path, measurement in measured.items()}))
        return
    print(f"{'path':24}{'p50 ms':>10}{'p99 ms':>10}{'kills':>8}{'usual p99':>11}{'beside':>8}")
    for path, m in measured.items():
        median = statistics.median(m.pauses) if m.pauses else math.nan
        counts = f"{len(m.pauses):8}{_p99(m.usual):11.1f}{_p99(m.beside):8.1f}"
        print(f"{path:24}{median:10.0f}{_p99(m.pauses):10.0f}{counts}")
    usual = [value for m in measured.values() for value in m.usual]
    beside = [value for m in measured.values() for value in m.beside]
    print(f"{kills} kills, load {os.getloadavg()[0]:.1f}")
    print(f"calls at other times: {len(usual)}, p99 {_p99(usual):.1f} ms")
    print(f"calls of clients of other workers after a kill: {len(beside)}, p99 {_p99(beside):.1f} ms")


if __name__ == "__main__":
    main()
