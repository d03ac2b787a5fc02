"""Clients that use all features are killed at random moments, and leave nothing behind in the service.

NNHAL_KILLS sets the number of killed clients. A sixth as many, but at least 10, are killed before that as a warm-up.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.support.full_client import STEPS, Client, Step
from tests.end_to_end.support.killable_clients import NAMES
from tests.end_to_end.support.service_objects import ROOT, CountedService, run_counted_service
from tests.end_to_end.support.service_process import Service

KILLS = int(os.environ.get("NNHAL_KILLS", "20"))
WARM_UP = max(10, KILLS // 6)
LATEST_S = 0.15
"""Latest moment of a kill after its step began. Most steps take some ten milliseconds and are repeated."""
GROWTH_BYTES = 2048 if KILLS >= 300 else 2**16
"""Allowed memory growth per kill. With few kills a few additional pages weigh more."""
ROUNDS = 3
"""A leak grows in each round; memory that an allocator keeps grows in the first ones only."""


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    connected = Client(service.target, 1)
    yield connected
    connected.close()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_each_step_gives_correct_results(client: Client, step: Step) -> None:
    for _ in range(2):
        step(client)


@contextmanager
def killable_clients(target: str, errors: Path) -> Iterator[Callable[[int], None]]:
    """Yield a function that runs and kills one client. A number decides the step and the moment."""
    command = [sys.executable, "-m", "tests.end_to_end.support.killable_clients", target]
    with errors.open("w") as stderr:
        parent = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    stdin, stdout = parent.stdin, parent.stdout
    assert stdin is not None and stdout is not None

    def kill(number: int) -> None:
        seconds = random.Random(number).uniform(0, LATEST_S)
        stdin.write(f"{NAMES[number % len(NAMES)]} {number} {seconds}\n")
        stdin.flush()
        assert stdout.readline() == "killed\n", errors.read_text()

    try:
        yield kill
    finally:
        stdin.close()
        parent.wait(30)
        stdout.close()


@pytest.mark.nightly
def test_clients_killed_at_any_moment(tmp_path: Path) -> None:
    with (
        run_counted_service(tmp_path) as service,
        killable_clients(service.service.target, tmp_path / "errors") as kill,
    ):
        take_all_steps(service)
        for number in range(WARM_UP):
            kill(number)
        grown = []
        for first in range(WARM_UP, WARM_UP + ROUNDS * KILLS, KILLS):
            before = service.snapshot()
            for number in range(first, first + KILLS):
                kill(number)
            after = service.snapshot()
            assert after.changed_since(before) == {}
            assert after.mappings == 0
            grown.append(after.resident - before.resident)
            if grown[-1] < GROWTH_BYTES * KILLS:
                break
        print(f"\nmemory {before.resident / 2**20:.1f} MiB; growth in bytes of {KILLS} kills each: {grown}")
        assert grown[-1] < GROWTH_BYTES * KILLS
        take_all_steps(service)


def take_all_steps(service: CountedService) -> None:
    """Take every step with a client that is not killed."""
    client = Client(service.service.target, 0)
    for step in STEPS:
        step(client)
    client.close()
