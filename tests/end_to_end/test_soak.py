"""Two bursts, ten unary clients and a fenced chain at once: every answer is right, and the service's memory is flat.

NNHAL_SOAK_S: how many seconds.

Flat means: the median of the memory in the last quarter of the time is hardly above that of the second (the first
is for warming up), and when all clients have gone, so have all objects, threads and descriptors that they brought.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import nnhal
from nnhal.local import Transport
from tests.end_to_end.everything import ADD, ADD_FIXED, same
from tests.end_to_end.holdings import CountedService, counted_service
from tests.end_to_end.processes import memory

SECONDS = float(os.environ.get("NNHAL_SOAK_S", "5"))
UNARY_CLIENTS = 10
CHAIN = 5
"""Executions, each of which reads what the one before it wrote."""
GROWTH_BYTES = (4 if SECONDS >= 60 else 48) * 2**20
"""Between the second and the last quarter. A few seconds may end before all clients have met with their largest tensors
at once, which are 48 MiB together."""
SAMPLES = 100
TRANSPORTS: Sequence[Transport] = ("auto", "grpc")
SIZES = (10, 1000, 30_000, 300_000)

Round = Callable[[int], int]
"""Some executions whose answers are checked; gives how many. Its argument counts the rounds."""


def unary(target: str, transport: Transport, stack: ExitStack) -> Round:
    """One execution a round, of inputs small and large."""
    device = stack.enter_context(nnhal.connect(target, timeout=60, transport=transport))
    prepared = stack.enter_context(device.prepare(ADD).result(60))

    def run(number: int) -> int:
        x = np.full(SIZES[number % len(SIZES)], number % 1000, np.float32)
        same(prepared.execute([x, x])[0], 2 * x)
        return 1

    return run


def burst(target: str, transport: Transport, stack: ExitStack) -> Round:
    """Several on their way; one input is kept."""
    device = stack.enter_context(nnhal.connect(target, timeout=60, transport=transport))
    prepared = stack.enter_context(device.prepare(ADD_FIXED).result(60))
    opened = stack.enter_context(prepared.burst())
    one = np.ones(1000, np.float32)
    kept = opened.keep(one)

    def run(number: int) -> int:
        inputs = [one * (number % 1000 + i) for i in range(8)]
        for x, future in [(x, opened.submit([x, kept])) for x in inputs]:
            same(future.result(60)[0], x + 1)
        return len(inputs)

    return run


def chain(target: str, transport: Transport, stack: ExitStack) -> Round:
    """Fenced executions of two models by turns; what lies between them stays on the service."""
    device = stack.enter_context(nnhal.connect(target, timeout=60, transport=transport))
    models = [stack.enter_context(device.prepare(ADD_FIXED).result(60)) for _ in range(2)]

    def run(number: int) -> int:
        x, go = np.full(1000, number % 1000, np.float32), device.fence()
        links = [models[0].execute_fenced([x, x], wait_for=[go])]
        for i in range(1, CHAIN):
            links.append(models[i % 2].execute_fenced([links[-1].outputs[0], x]))
        go.signal()
        same(links[-1].result(60)[0], (CHAIN + 1) * x)
        return CHAIN

    return run


class Crowd:
    """A thread for each client. Counts the answers, keeps what failed."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.failures: list[BaseException] = []
        self.answers = [0] * len(rounds)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=item) for item in enumerate(rounds)]
        for thread in self._threads:
            thread.start()

    def _work(self, place: int, run: Round) -> None:
        number = 0
        try:
            while not self._over.is_set():
                self.answers[place] += run(number)
                number += 1
        except BaseException as error:
            self.failures.append(error)

    def stop(self) -> None:
        """Waits until each has finished its round."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)


def sampled(pid: int, seconds: float) -> list[int]:
    """Memory of a process in bytes, at equal distances."""
    found, start = [], time.monotonic()
    for number in range(SAMPLES):
        time.sleep(max(0.0, start + (number + 1) * seconds / SAMPLES - time.monotonic()))
        found.append(memory(pid, "VmRSS"))
    return found


def soak(service: CountedService, stack: ExitStack) -> tuple[Crowd, list[int]]:
    """All at once, for the time that is asked for."""
    target = service.service.target
    rounds = [unary(target, TRANSPORTS[i % 2], stack) for i in range(UNARY_CLIENTS)]
    rounds += [burst(target, transport, stack) for transport in TRANSPORTS]
    rounds.append(chain(target, "auto", stack))
    crowd = Crowd(rounds)
    try:
        samples = sampled(service.pid, SECONDS)
    finally:
        crowd.stop()
    return crowd, samples


def test_soak(tmp_path: Path) -> None:
    with counted_service(tmp_path) as service:
        with ExitStack() as stack:  # what is made once is there before objects are counted
            for make in (unary, burst, chain):
                make(service.service.target, "auto", stack)(0)
        before = service.everything()
        with ExitStack() as stack:
            crowd, samples = soak(service, stack)
        assert crowd.failures == []
        assert min(crowd.answers) > 0
        memories = [statistics.median(samples[i : i + SAMPLES // 4]) for i in range(0, SAMPLES, SAMPLES // 4)]
        total, grown = sum(crowd.answers), memories[3] - memories[1]
        print(f"\n{total} right answers in {SECONDS:g} s, the slowest client had {min(crowd.answers)}")
        print("memory by quarters: " + ", ".join(f"{figure / 2**20:.1f}" for figure in memories) + " MiB")
        assert grown <= GROWTH_BYTES
        assert service.everything().changed_since(before) == {}
