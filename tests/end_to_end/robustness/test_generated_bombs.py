"""Generated bombs beside a victim.

Each bomb gets a clear error, the victim all its answers, and the memory of the worker stays within its limit.
"""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from nnhal.types import ErrorStatus
from tests.end_to_end.robustness.bomb_grammar import KINDS, outcome
from tests.end_to_end.robustness.hostile_models import prepare_large_output
from tests.end_to_end.robustness.unreading_client import UnreadingClient
from tests.end_to_end.support.attacked_service import GoodClient
from tests.end_to_end.support.process_usage import status_bytes
from tests.end_to_end.support.raw_client import open_raw_session
from tests.end_to_end.support.service_process import Service, start_service, stop_service

pytestmark = pytest.mark.slow

PROCESS_BYTES = 768 * 2**20
SEEDS = range(4)
UNREAD = 100
"""Responses of 1.6 MB each that a client does not read."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service with little memory, a client that does not read its responses, and a victim.

    In the end, the victim has all its answers, and the worker is the same and has never used more than its memory.
    """
    running = start_service(
        tmp_path_factory.mktemp("bombs"),
        f"--process-bytes={PROCESS_BYTES}",
        "--limit=objects=2000",
        "--session-grace-s=0",
    )
    worker = running.pid
    try:
        victim = GoodClient(running.target)
        with ExitStack() as stack:
            raw = stack.enter_context(open_raw_session(running.target))
            unreading = stack.enter_context(UnreadingClient(running.target))
            request = prepare_large_output(raw)
            for _ in range(UNREAD):
                unreading.call("PreparedModel/ExecuteSynchronously", request)
            yield running
        victim.stop()
        assert running.pid == worker, running.log.read_text()[-2000:]
        assert status_bytes(worker, "VmHWM") < PROCESS_BYTES
        assert not running.logged("Traceback"), running.log.read_text()
    finally:
        assert stop_service(running) == 0


def check(service: Service, name: str, seed: int) -> None:
    """Explode a bomb in a session of its own, and check its error."""
    kind = KINDS[name]
    with open_raw_session(service.target) as raw:
        status, reason = outcome(kind, raw, seed)
    if status == ErrorStatus.NONE:
        assert kind.affordable, f"{name} {seed} has no error"
    else:
        assert any(text in reason for text in kind.texts), (name, seed, status, reason)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KINDS)
def test_a_bomb_gets_a_clear_error(service: Service, name: str, seed: int) -> None:
    check(service, name, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_bombs_at_the_same_time(service: Service, seed: int) -> None:
    names = random.Random(seed).choices(list(KINDS), k=8)
    with ThreadPoolExecutor(len(names)) as pool:
        for exploded in [pool.submit(check, service, name, 1000 * seed + number) for number, name in enumerate(names)]:
            exploded.result()
