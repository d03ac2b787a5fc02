"""Two bursts, ten unary clients and a fenced chain at once: all results are correct, and memory does not grow.

NNHAL_SOAK_S sets the duration in seconds.

The median memory in the last quarter of the time may be only slightly above that of the second quarter (the first is a
warm-up). When all clients have gone, no object, thread or descriptor of theirs is left.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.client.core.session import Transport
from tests.end_to_end.support.full_client import ADD, ADD_FIXED, assert_same
from tests.end_to_end.support.process_usage import status_bytes
from tests.end_to_end.support.service_objects import CountedService, run_counted_service

SECONDS = float(os.environ.get("NNHAL_SOAK_S", "5"))
UNARY_CLIENTS = 10
CHAIN = 5
"""Number of executions in a chain. Each reads the output of the one before it."""
GROWTH_BYTES = (4 if SECONDS >= 60 else 48) * 2**20
"""Allowed growth between the second and the last quarter. In a few seconds, the clients may not have sent their largest
tensors, 48 MiB in total, at the same time yet."""
SAMPLES = 100
TRANSPORTS: Sequence[Transport] = ("auto", "grpc")
SIZES = (10, 1000, 30_000, 300_000)

RunRound = Callable[[int], int]
"""Runs some executions, checks the results, and returns their number. The argument is the number of the round."""


def unary_rounds(target: str, transport: Transport, stack: ExitStack) -> RunRound:
    """Return a function that runs one execution per round, with small and large inputs."""
    device = stack.enter_context(nnhal.connect(target, timeout=60, transport=transport))
    prepared = stack.enter_context(device.prepare(ADD).result(60))

    def run(number: int) -> int:
        x = np.full(SIZES[number % len(SIZES)], number % 1000, np.float32)
        assert_same(prepared.execute([x, x])[0], 2 * x)
        return 1

    return run


def burst_rounds(target: str, transport: Transport, stack: ExitStack) -> RunRound:
    """Return a function that runs several executions of a burst in flight, with one cached input."""
    device = stack.enter_context(nnhal.connect(target, timeout=60, transport=transport))
    prepared = stack.enter_context(device.prepare(ADD_FIXED).result(60))
    opened = stack.enter_context(prepared.burst())
    ones = np.ones(1000, np.float32)
    cached = opened.keep(ones)

    def run(number: int) -> int:
        inputs = [ones * (number % 1000 + i) for i in range(8)]
        for x, future in [(x, opened.submit([x, cached])) for x in inputs]:
            assert_same(future.result(60)[0], x + 1)
        return len(inputs)

    return run


def fenced_rounds(target: str, transport: Transport, stack: ExitStack) -> RunRound:
    """Return a function that runs a chain of fenced executions of two models. Their values stay on the service."""
    device = stack.enter_context(nnhal.connect(target, timeout=60, transport=transport))
    models = [stack.enter_context(device.prepare(ADD_FIXED).result(60)) for _ in range(2)]

    def run(number: int) -> int:
        x, go = np.full(1000, number % 1000, np.float32), device.fence()
        links = [models[0].execute_fenced([x, x], wait_for=[go])]
        for i in range(1, CHAIN):
            links.append(models[i % 2].execute_fenced([links[-1].outputs[0], x]))
        go.signal()
        assert_same(links[-1].result(60)[0], (CHAIN + 1) * x)
        return CHAIN

    return run


class ClientThreads:
    """One thread per client. Counts results and collects failures."""

    def __init__(self, rounds: Sequence[RunRound]) -> None:
        self.failures: list[BaseException] = []
        self.results = [0] * len(rounds)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=item) for item in enumerate(rounds)]
        for thread in self._threads:
            thread.start()

    def _work(self, index: int, run: RunRound) -> None:
        number = 0
        try:
            while not self._over.is_set():
                self.results[index] += run(number)
                number += 1
        except BaseException as error:
            self.failures.append(error)

    def stop(self) -> None:
        """Stop after the current rounds."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)


def sample_memory(pid: int, seconds: float) -> list[int]:
    """Sample the memory of a process in bytes at equal intervals."""
    samples, start = [], time.monotonic()
    for number in range(SAMPLES):
        time.sleep(max(0.0, start + (number + 1) * seconds / SAMPLES - time.monotonic()))
        samples.append(status_bytes(pid, "VmRSS"))
    return samples


def soak(service: CountedService, stack: ExitStack) -> tuple[ClientThreads, list[int]]:
    """Run all clients at once for SECONDS."""
    target = service.service.target
    rounds = [unary_rounds(target, TRANSPORTS[i % 2], stack) for i in range(UNARY_CLIENTS)]
    rounds += [burst_rounds(target, transport, stack) for transport in TRANSPORTS]
    rounds.append(fenced_rounds(target, "auto", stack))
    clients = ClientThreads(rounds)
    try:
        samples = sample_memory(service.pid, SECONDS)
    finally:
        clients.stop()
    return clients, samples


@pytest.mark.nightly
def test_soak(tmp_path: Path) -> None:
    with run_counted_service(tmp_path) as service:
        with ExitStack() as stack:  # objects that are created once exist before the objects are counted
            for make in (unary_rounds, burst_rounds, fenced_rounds):
                make(service.service.target, "auto", stack)(0)
        before = service.snapshot()
        with ExitStack() as stack:
            clients, samples = soak(service, stack)
        assert clients.failures == []
        assert min(clients.results) > 0
        memories = [statistics.median(samples[i : i + SAMPLES // 4]) for i in range(0, SAMPLES, SAMPLES // 4)]
        total, grown = sum(clients.results), memories[3] - memories[1]
        print(f"\n{total} correct results in {SECONDS:g} s, the slowest client had {min(clients.results)}")
        print("memory by quarters: " + ", ".join(f"{figure / 2**20:.1f}" for figure in memories) + " MiB")
        assert grown <= GROWTH_BYTES
        assert service.snapshot().changed_since(before) == {}
