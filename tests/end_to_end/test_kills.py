"""Clients that use everything are killed at random moments: nothing that they had is left behind.

NNHAL_KILLS: how many are killed; one in six as many before that, and at least 10, to warm up.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Service
from tests.end_to_end.everything import STEPS, Client, Step
from tests.end_to_end.holdings import ROOT, CountedService, counted_service
from tests.end_to_end.mortal import NAMES

KILLS = int(os.environ.get("NNHAL_KILLS", "20"))
WARM_UP = max(10, KILLS // 6)
LATEST_S = 0.15
"""A client is killed at most so long after its step began; most steps take some ten milliseconds and are repeated."""
GROWTH_BYTES = 2048 if KILLS >= 300 else 2**16
"""What the service's memory may grow by for each kill. A few kills say less: some pages more are few among many."""


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    connected = Client(service.target, 1)
    yield connected
    connected.close()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_client_that_lives_gets_the_right_answers(client: Client, step: Step) -> None:
    for _ in range(2):
        step(client)


@contextmanager
def mortals(target: str, errors: Path) -> Iterator[Callable[[int], None]]:
    """Gives what lets one client live and die, in a step and at a moment that its number decides."""
    command = [sys.executable, "-m", "tests.end_to_end.mortal", target]
    with errors.open("w") as stderr:
        nursery = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    stdin, stdout = nursery.stdin, nursery.stdout
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
        nursery.wait(30)
        stdout.close()


def test_clients_killed_at_any_moment(tmp_path: Path) -> None:
    with counted_service(tmp_path) as service, mortals(service.service.target, tmp_path / "errors") as kill:
        warm(service)
        for number in range(WARM_UP):
            kill(number)
        before = service.everything()
        for number in range(WARM_UP, WARM_UP + KILLS):
            kill(number)
        after = service.everything()
        grown = after.resident - before.resident
        print(f"\n{KILLS} kills: memory {before.resident / 2**20:.1f} MiB, and {grown / 1024:.0f} KiB more")
        assert after.changed_since(before) == {}
        assert after.mappings == 0
        assert grown < GROWTH_BYTES * KILLS
        warm(service)


def warm(service: CountedService) -> None:
    """Every step by a client that lives."""
    client = Client(service.service.target, 0)
    for step in STEPS:
        step(client)
    client.close()
