"""Owners of work: each session is one, on every path of execution, so that sessions share the device fairly."""

from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

import nnhal
from nnhal.client.core.session import Transport
from nnhal.cpu import available_cpus
from nnhal_driver.scheduling.admission import AdmissionQueue
from nnhal_driver.scheduling.ticket import Ticket
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.driver.blocking_backend import TWICE
from tests.driver.control_flow_models import counts, f, less_than, loop

ONE = np.ones(2, np.float32)


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> list[Hashable]:
    """Return the list that the owner of each admitted execution and preparation is added to."""
    recorded: list[Hashable] = []
    acquire = AdmissionQueue.acquire

    def record(queue: AdmissionQueue, ticket: Ticket) -> bool:
        recorded.append(ticket.request.owner)
        return acquire(queue, ticket)

    monkeypatch.setattr(AdmissionQueue, "acquire", record)
    return recorded


@pytest.fixture
def target() -> Iterator[str]:
    with Server(Settings(listen=("127.0.0.1:0",), backends=("CpuRef",))) as server:
        yield server.addresses[0]


def run_every_path(device: "nnhal.Device") -> None:
    """Execute a model on each path once."""
    prepared = device.prepare(TWICE).result(60)
    prepared.execute([ONE, ONE])
    prepared.profile([ONE, ONE])
    prepared.execute_fenced([ONE, ONE]).result(60)
    with prepared.burst() as burst:
        burst.execute([ONE, ONE])
        burst.execute([burst.keep(ONE), ONE])
    with prepared.reusable([ONE, ONE]) as execution:
        execution.run()
        execution.run_fenced().result(60)


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_each_session_is_an_owner_on_every_path(target: str, owners: list[Hashable], transport: Transport) -> None:
    of_sessions = []
    for _ in range(2):
        owners.clear()
        with nnhal.connect(target, transport=transport) as device:
            run_every_path(device)
        assert len(owners) >= 7
        of_sessions.append(set(owners))
    first, second = of_sessions
    assert len(first) == len(second) == 1, "all work of a session has the same owner"
    assert not first & second
    assert None not in first | second


def test_loops_of_some_sessions_keep_no_others_waiting(target: str) -> None:
    """Loops take turns with others: they occupy all slots until their timeout otherwise."""
    with ThreadPoolExecutor() as pool, ExitStack() as devices:
        loops = []
        for _ in range(available_cpus() + 1):
            prepared = devices.enter_context(nnhal.connect(target)).prepare(loop(less_than(), counts())).result(60)
            loops.append(pool.submit(prepared.execute, [f(0), f(1e30)], loop_timeout=15))
        with nnhal.connect(target) as other:
            prepared = other.prepare(TWICE).result(60)
            for _ in range(5):
                prepared.execute([ONE, ONE])
        assert not any(each.done() for each in loops)
