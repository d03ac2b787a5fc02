"""Clients beside the shadow: `python -m tests.benchmark.shadowing [SECONDS] [MODEL...]`.

CpuRef is the shadow of a service with CpuAcc. A client executes each model of ../shared/models, and waits after each
execution as long as it took: alone, with a shadow of every execution, while that shadow is killed again and again, and
beside other programs of the shadow's priority that use all cores. It prints the 99th percentiles of the durations, and
what the shadow has counted.
"""

import itertools
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

import nnhal
import nnhal.tflite
from nnhal.cpu import available_cpus
from tests.benchmark.models import Subject, subject
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.shared import SHARED

_ALONE, _SHADOWED, _KILLED, _BESIDE = "alone", "shadow", "killed shadow", "other programs"
_SHADOW_NICE = 19
_KILL_PAUSE_S = 0.2
_ROUNDS = 3
_CAUGHT_UP_S = 60.0
_killed_processes: list[int] = []


def run(service: Service, path: Path, seconds: float) -> str:
    """Measure one model in all phases, in rounds. Return its line."""
    model = subject(path)
    durations: dict[str, list[float]] = defaultdict(list)
    with (
        nnhal.connect(service.target, timeout=60, transport="grpc") as device,
        device.prepare(model.model).result(120) as prepared,
    ):
        execute(prepared, model, seconds / 2)
        before = counts(service)
        for phase in (_ALONE, _SHADOWED, _KILLED, _BESIDE) * _ROUNDS:
            with _CONDITIONS[phase](service):
                durations[phase] += execute(prepared, model, seconds / _ROUNDS)
        wait_for_shadow(service)
    results = counts(service) - before
    figures = " ".join(f"{p99(durations[phase]) * 1e3:9.2f}" for phase in _CONDITIONS)
    return f"{path.stem:42}{figures}   " + ", ".join(f"{count} {name}" for name, count in results.most_common())


def execute(prepared: nnhal.PreparedModel, model: Subject, seconds: float) -> list[float]:
    """Execute a model for some seconds. Return the durations in seconds."""
    durations, end = list[float](), time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        prepared.execute(model.inputs)
        durations.append(time.perf_counter() - start)
        time.sleep(durations[-1])
    return durations


def p99(durations: Sequence[float]) -> float:
    """Return the 99th percentile, or the longest of few."""
    return statistics.quantiles(durations, n=100)[98] if len(durations) > 100 else max(durations)


@contextmanager
def _alone(_: Service) -> Iterator[None]:
    yield


@contextmanager
def _shadowed(service: Service) -> Iterator[None]:
    switch(service, "start", "--share", "1")
    try:
        yield
    finally:
        switch(service, "stop")


@contextmanager
def _killed(service: Service) -> Iterator[None]:
    is_over = threading.Event()

    def kill() -> None:
        while not is_over.wait(_KILL_PAUSE_S):
            for child in psutil.Process(service.process.pid).children():
                with suppress(psutil.NoSuchProcess):
                    if child.name() == "nnhal-shadow":
                        child.send_signal(signal.SIGKILL)
                        _killed_processes.append(child.pid)

    thread = threading.Thread(target=kill)
    with _shadowed(service):
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


@contextmanager
def _beside_others(_: Service) -> Iterator[None]:
    processes = [multiprocessing.get_context("spawn").Process(target=_compute) for _ in range(available_cpus())]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _compute() -> None:
    os.nice(_SHADOW_NICE)
    for _ in itertools.count():
        pass


_CONDITIONS = {_ALONE: _alone, _SHADOWED: _shadowed, _KILLED: _killed, _BESIDE: _beside_others}


def switch(service: Service, *arguments: str) -> None:
    """Start or stop the shadow."""
    state = str(service.log.parent / "state")
    command = [sys.executable, "-m", "nnhal_tools.cli", "shadow", *arguments, "--state-dir", state]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def counts(service: Service) -> Counter[str]:
    """Return the executions of the shadow by result."""
    port = re.findall(r"http-serving port=(\d+)", service.log.read_text())[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        rows = re.findall(r'nnhal_shadow_executions_total{.*result="([\w ]+)"} (\d+)', response.read().decode())
    found: Counter[str] = Counter()
    for result, count in rows:
        found[result] += int(count)
    return found


def wait_for_shadow(service: Service) -> None:
    """Wait until the shadow counts no more, so that the next model is measured without it."""
    last, end = counts(service), time.monotonic() + _CAUGHT_UP_S
    while time.monotonic() < end:
        time.sleep(1)
        last, before = counts(service), last
        if last == before:
            return


def main(seconds: str = "6", *names: str) -> None:
    """Measure the models with these names, by default all that can be imported."""
    with TemporaryDirectory() as folder:
        options = ("--shadow", "CpuRef", "--shadow-share", "0", "--http-listen", "127.0.0.1:0")
        service = start_service(Path(folder), *options, NNHAL_STATE_DIR=f"{folder}/state")
        worker = service.pid
        try:
            print(f"{'p99 of executions in ms':42}" + " ".join(f"{phase[:9]:>9}" for phase in _CONDITIONS))
            for path in sorted((SHARED / "models").glob("*.tflite")):
                if not names or path.stem in names:
                    try:
                        print(run(service, path, float(seconds)), flush=True)
                    except nnhal.tflite.TfliteError as error:
                        print(f"{path.stem:42}not measured: {error}")
            same = "the same worker" if service.pid == worker else "ANOTHER WORKER"
            print(f"{len(_killed_processes)} kills of the shadow; {same} serves")
        finally:
            stop_service(service)


if __name__ == "__main__":
    main(*sys.argv[1:])
