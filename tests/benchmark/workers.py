"""Workers: start of a service, replacement of a worker, and the throughput of two workers.

`python -m tests.benchmark.workers` measures the time from the start of `nnhal serve` to the first answer, the time from
the death of the only worker until another one answers, and the answers per second that four client processes get from
one and from two workers, in turns.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc

from nnhal.v1 import device_pb2, device_pb2_grpc
from tests.benchmark.figures import Figure, model_path, show
from tests.end_to_end.support.service_process import Service, start_service, stop_service

START_S = 1.0
"""Limit of the time from the start to the first answer."""
RESTART_S = 0.25
"""Limit of the time from the death of a worker to the first answer of the next one."""
TWO_WORKERS = 1.2
"""Throughput that two workers must reach on two cores, in multiples of that of one."""

_CLIENTS = 4
_WINDOW_S = 3.0
_POLL_S = 0.005

_CLIENT = """
import sys, time, numpy as np, nnhal, nnhal.tflite
target, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
model = nnhal.tflite.load(path)
with nnhal.connect(target, transport="grpc") as device, device.prepare(model, cache=True).result(60) as prepared:
    x = np.zeros(prepared.inputs[0].shape, prepared.inputs[0].dtype)
    for _ in range(50):
        prepared.execute([x])
    print("ready", flush=True)
    sys.stdin.readline()
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        prepared.execute([x])
        count += 1
    print(count, flush=True)
"""


def wait_for_answer(target: str) -> None:
    """Call a service until it answers."""
    while True:
        with grpc.insecure_channel(target) as channel, suppress(grpc.RpcError):
            device_pb2_grpc.DeviceStub(channel).ListDevices(device_pb2.ListDevicesRequest(), timeout=5)
            return
        time.sleep(_POLL_S)


@contextmanager
def running(*options: str) -> Iterator[tuple[Service, float]]:
    """Run a service; yield it with the seconds from its start to its first answer."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        service = start_service(Path(folder), *options)
        try:
            wait_for_answer(service.target)
            yield service, time.monotonic() - began
        finally:
            stop_service(service)


def start_and_restart(rounds: int) -> Iterator[Figure]:
    """Yield the times of starts and of replacements."""
    starts, restarts = [], []
    for _ in range(rounds):
        with running() as (service, seconds):
            starts.append(seconds)
            began = time.monotonic()
            os.kill(service.pid, signal.SIGKILL)
            wait_for_answer(service.target)
            restarts.append(time.monotonic() - began)
    yield Figure("start of nnhal serve to its first answer", starts, "s", START_S)
    yield Figure("death of a worker to the first answer of the next one", restarts, "s", RESTART_S)


def throughput(rounds: int) -> Iterator[Figure]:
    """Yield the throughput of two workers in multiples of that of one."""
    ratios, single = [], []
    for _ in range(rounds):
        with running() as (one, _), running("--workers", "2") as (two, _):
            alone = _answers_per_second(one.target)
            single.append(alone)
            ratios.append(_answers_per_second(two.target) / alone)
    yield Figure(f"answers per second of {_CLIENTS} clients with one worker, VWW over gRPC", single, "/s")
    yield Figure("two workers, in multiples of one", ratios, "x", TWO_WORKERS, at_least=True)


def _answers_per_second(target: str) -> float:
    command = [sys.executable, "-c", _CLIENT, target, str(model_path("vww_96_int8")), str(_WINDOW_S)]
    clients = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(_CLIENTS)
    ]
    for client in clients:
        assert client.stdout is not None and client.stdout.readline() == "ready\n"
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("\n")
        client.stdin.flush()
    counts = [int(client.communicate(timeout=60)[0]) for client in clients]
    return sum(counts) / _WINDOW_S


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    show("Workers", lambda: start_and_restart(options.rounds))
    show("Throughput", lambda: throughput(max(3, options.rounds // 3)))


if __name__ == "__main__":
    main()
