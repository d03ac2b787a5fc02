"""Pause of clients when their service is killed: time from the kill to the next answer, on each path.

`python -m tests.benchmark.recovery` starts `nnhal serve`, and a client process for each combination of client
(synchronous, asyncio), transport (gRPC, shared memory) and call (execute, burst, submit). Each executes a cached model
in a loop and checks each answer. If the service has worker processes, a random one is killed, and its supervisor
replaces it; otherwise the service is killed and started again. The pause of a client is the longest time after the kill
without an answer. Aims on two idle cores, for a service that is back within 0.25 s: 150 ms at the median, and 1 s for
the 99th percentile.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

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
BETWEEN_S = (0.5, 1.5)
"""Shortest and longest time between the recovery of all clients and the next kill."""


def model() -> Model:
    """Return a model that adds constants to its input."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [SIZE])
    b.output(b.add(Op.ADD, x, WEIGHTS, 0, output=x.description))
    return b.build()


# ---- Clients --------------------------------------------------------------------------------------------


def check(outputs: Sequence[AnyArray], number: int) -> None:
    """Check an answer, and print the time at which it came.

    Raises:
        RuntimeError: it is wrong.
    """
    if not np.array_equal(outputs[0], WEIGHTS + number):
        raise RuntimeError("an answer is wrong")
    print(time.monotonic(), flush=True)
    time.sleep(PAUSE_S)


def run_sync_client(target: str, transport: Transport, call: str) -> None:
    """Execute for ever."""
    with nnhal.connect(target, transport=transport, timeout=TIMEOUT_S) as device:
        prepared = device.prepare(model(), cache=True).result(TIMEOUT_S)
        burst = prepared.burst()
        execute: Callable[[Sequence[AnyArray]], Outputs] = prepared.execute if call == "execute" else burst.execute
        for number in itertools.cycle(range(1000)):
            x = np.full(SIZE, number, np.float32)
            if call != "submit":
                check(execute([x]), number)
                continue
            futures = [burst.submit([x + i]) for i in range(SUBMITTED)]
            for i, future in enumerate(futures):
                check(future.result(TIMEOUT_S), number + i)


async def run_asyncio_client(target: str, transport: Transport, call: str) -> None:
    """Execute for ever."""
    async with nnhal.aio.connect(target, transport=transport, timeout=TIMEOUT_S) as device:
        prepared = await device.prepare(model(), cache=True)
        burst = await prepared.burst()
        for number in itertools.cycle(range(1000)):
            x = np.full(SIZE, number, np.float32)
            if call == "execute":
                results = [await prepared.execute([x])]
            else:
                count = SUBMITTED if call == "submit" else 1
                results = await asyncio.gather(*(burst.submit([x + i]) for i in range(count)))
            for i, outputs in enumerate(results):
                check(outputs, number + i)


def run_client(target: str, path: str) -> None:
    """Run the client of a path for ever."""
    client, transport, call = path.split()
    chosen: Transport = "grpc" if transport == "grpc" else "auto"
    if client == "sync":
        run_sync_client(target, chosen, call)
    else:
        asyncio.run(run_asyncio_client(target, chosen, call))


@dataclass(frozen=True)
class Client:
    """Process of a client. Its times of answers are in a file."""

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

    def answers(self) -> list[float]:
        """Return the times of its answers so far.

        Raises:
            RuntimeError: the client has failed.
        """
        if self.process.poll() is not None:
            raise RuntimeError(f"the client of {self.path} has ended with status {self.process.returncode}")
        return [float(line) for line in self.times.read_text().split("\n")[:-1]]

    def has_answered_since(self, when: float) -> bool:
        """Return whether it had an answer after a time."""
        answers = self.answers()
        return bool(answers) and answers[-1] > when

    def stop(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


def pause_ms(answers: Sequence[float], kill: float, end: float) -> float:
    """Return the longest time without an answer between a kill and the end of its round, in milliseconds."""
    times = [kill, *(answer for answer in answers if kill < answer <= end)]
    return max(b - a for a, b in pairwise(times)) * 1e3


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
        self._command = [*options, "--listen", self.target, "--log-level", "error"]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, env=self._environment)
        assert process.stdout is not None
        if not process.stdout.readline().startswith("listening on "):
            process.kill()
            raise RuntimeError("the service does not start")
        return process

    def kill(self) -> float:
        """Kill a worker, or the service, which is then started again. Return the time of the kill."""
        workers = [pid for pid in _descendants(self._process.pid) if _thread_count(pid) > 2]
        when = time.monotonic()
        os.kill(random.choice(workers) if workers else self._process.pid, signal.SIGKILL)
        if not workers:
            self.close()
            self._process = self._start()
        return when

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


def _thread_count(pid: int) -> int:
    return len(list(Path("/proc", str(pid), "task").iterdir()))


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("a client does not recover")
        time.sleep(0.02)


def measure(kills: int, paths: Sequence[str], options: Sequence[str]) -> dict[str, list[float]]:
    """Return the pauses of the clients of each path, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        service = KillableService(folder / "cache", options)
        clients = [Client.start(folder, service.target, path) for path in paths]
        pauses: dict[str, list[float]] = {path: [] for path in paths}
        try:
            _wait(lambda: all(client.has_answered_since(0) for client in clients))
            for _ in range(kills):
                time.sleep(random.uniform(*BETWEEN_S))
                killed = service.kill()
                time.sleep(SETTLE_S)  # until then, an answer may come from before the kill
                _wait(lambda: all(client.has_answered_since(killed + SETTLE_S) for client in clients))  # noqa: B023
                end = time.monotonic()
                for client in clients:
                    pauses[client.path].append(pause_ms(client.answers(), killed, end))
        finally:
            for client in clients:
                client.stop()
            service.close()
        return pauses


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills instead of {KILLS}")
    parser.add_argument("--kills", type=int, default=0, help="number of kills")
    parser.add_argument("--path", action="append", choices=PATHS, help="a path to measure; by default all at once")
    parser.add_argument("--serve", default="", help="command that serves, instead of `nnhal serve`; takes its options")
    parser.add_argument("--client", nargs=2, metavar=("TARGET", "PATH"), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the pauses as JSON")
    options = parser.parse_args(arguments)
    if options.client:
        run_client(*options.client)
    serve = options.serve.split() or [sys.executable, "-m", "nnhal_tools.cli", "serve"]
    kills = options.kills or (QUICK_KILLS if options.quick else KILLS)
    pauses = measure(kills, options.path or PATHS, serve)
    if options.json:
        print(json.dumps(pauses))
        return
    print(f"{'path':24}{'p50 ms':>10}{'p99 ms':>10}   of {kills} kills, load {os.getloadavg()[0]:.1f}")
    for path, values in pauses.items():
        worst = sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
        print(f"{path:24}{statistics.median(values):10.0f}{worst:10.0f}")


if __name__ == "__main__":
    main()
