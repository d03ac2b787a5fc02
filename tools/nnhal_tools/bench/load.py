"""Client processes of one subject, and the samples that they take together."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nnhal.types import AnyArray
from nnhal_tools.bench.client_process import ClientRun
from nnhal_tools.bench.service_processes import ServiceProcesses
from nnhal_tools.bench.specification import ENGINE, ClientTask, Level, Subject

_PROGRAM = (sys.executable, "-P", "-m", "nnhal_tools.bench.client_process")


class BenchError(Exception):
    """A client cannot run the model. The message says why."""


@dataclass(frozen=True)
class Sample:
    """Measurement of one subject at one level in one round.

    Attributes:
        latencies: seconds of each call that succeeded.
        measured: latency, time on the device and time in the driver of the calls that the service has measured.
        calls_per_s: calls per second that succeeded, of all clients.
        client_s: processor time of the clients per call.
        service_s: processor time of the service per call; None if unknown.
    """

    latencies: AnyArray
    measured: AnyArray
    errors: dict[str, int] = field(default_factory=dict)
    calls_per_s: float = 0.0
    client_s: float = 0.0
    service_s: float | None = None


class _ClientProcess:
    """One client process."""

    def __init__(self, task: ClientTask) -> None:
        self._process = subprocess.Popen(
            task.program or _PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # so that Ctrl-C reaches the command only, which ends them
        )
        self._write(task.to_json())

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchError("a client process has ended") from None

    def expect(self, word: str) -> None:
        """Wait for a line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise BenchError(line.removeprefix("failed ") or f"a client process has ended ({self._process.wait()})")

    def start(self, run: ClientRun) -> None:
        """Begin a run; `expect("done")` waits for its end."""
        self._write(run.to_json())

    def close(self) -> None:
        """End the process, also in the middle of a run. Its results are in files."""
        self._process.kill()
        self._process.communicate()


class LoadGenerator:
    """Client processes of one subject, which have prepared the model. Close it when done.

    Args:
        task: what each client runs.
        clients: number of clients.
        folder: an existing folder for results.

    Raises:
        BenchError: a client cannot run the model.
    """

    def __init__(self, task: ClientTask, clients: int, folder: Path) -> None:
        self.subject: Subject = task.subject
        self._folder = folder
        self._stack = ExitStack()
        self._clients: list[_ClientProcess] = []
        self._service = None if task.subject.path == ENGINE else ServiceProcesses(task.subject.target)
        try:
            for _ in range(clients):
                client = _ClientProcess(task)
                self._stack.callback(client.close)
                self._clients.append(client)
                client.expect("ready")  # one after the other: the first one fills the cache of the service
        except BaseException:
            self.close()
            raise

    def sample(self, level: Level, warmup_s: float, duration_s: float, seed: int) -> Sample:
        """Run a level once.

        Raises:
            BenchError: a client process has ended.
        """
        clients = self._clients[: level.clients]
        files = [self._folder / f"{number}.npz" for number in range(len(clients))]
        before = self._service.processor_s() if self._service else None
        for number, (client, file) in enumerate(zip(clients, files, strict=True)):
            rate = level.rate / len(clients)
            client.start(ClientRun(warmup_s, duration_s, rate, seed * len(self._clients) + number, str(file)))
        for client in clients:
            client.expect("done")
        after = self._service.processor_s() if self._service else None
        # the time of the warm-up is in it, so it is taken for the same share of the calls
        share = duration_s / (warmup_s + duration_s)
        used = None if before is None or after is None else (after - before) * share
        return _combine(files, used)

    def close(self) -> None:
        """End the processes."""
        self._stack.close()


def _combine(files: Sequence[Path], service_s: float | None) -> Sample:
    """Return the sample of all clients."""
    latencies, measured, errors = [], [], Counter[str]()
    calls_per_s = client_s = 0.0
    for file in files:
        with np.load(file) as result:
            latencies.append(result["latencies"])
            measured.append(result["measured"])
            errors.update(json.loads(str(result["errors"])))
            elapsed_s = float(result["elapsed_s"])
            calls_per_s += len(latencies[-1]) / elapsed_s if elapsed_s else 0.0
            client_s += float(result["processor_s"])
    count = sum(map(len, latencies))
    return Sample(
        np.concatenate(latencies),
        np.concatenate(measured),
        errors,
        calls_per_s,
        client_s / max(count, 1),
        None if service_s is None else service_s / max(count, 1),
    )
