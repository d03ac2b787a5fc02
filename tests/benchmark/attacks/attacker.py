"""Process of the attacker. Its own work happens elsewhere in reality, so it has the lowest priority."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.benchmark.attacks import deadlines, floods, memory, models, unread  # noqa: F401 - they register attacks
from tests.benchmark.attacks.attack import ATTACKS

_LOWEST_PRIORITY = 19


def start_attacker() -> ProcessPoolExecutor:
    """Return a pool with one process, which waits for `run_attack`."""
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)
    pool.submit(time.monotonic).result()
    return pool


def _begin() -> None:
    os.nice(_LOWEST_PRIORITY)


def run_attack(name: str, target: str, seconds: float) -> str:
    """Attack a service, and return in a few words what happened."""
    return ATTACKS[name](target, time.monotonic() + seconds)
