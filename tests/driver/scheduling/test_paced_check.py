"""Long work pauses for others, and more often if they use the lock. The collector is paused by one at a time."""

import gc
import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest

from nnhal.types import AnyArray, Model, OperationType
from nnhal_driver.scheduling import paced_check
from nnhal_driver.scheduling.paced_check import PacedCheck, pause_collector
from tests.driver.control_flow_models import counts, f, less_than, loop
from tests.driver.fake_backend import chain
from tests.driver.one_operation import execute, prepare


@pytest.mark.parametrize(("pause_ns", "pauses"), [(100_000, 4), (1_000_000, 7)])
def test_work_pauses_more_often_if_a_pause_takes_long(
    pause_ns: int, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, checks = 0, 0

    def sleep(_: float) -> None:
        nonlocal now
        now += pause_ns

    def check() -> None:
        nonlocal checks
        checks += 1

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
    paced = PacedCheck(check)
    while now < 10_000_000:
        paced()
        now += 10_000
    assert checks == pauses


@pytest.mark.parametrize(
    ("model", "inputs", "result"),
    [(loop(less_than(), counts()), [f(0), f(9)], [9]), (chain(*[OperationType.ADD] * 9), [f(1, 2)], [10, 20])],
    ids=["loop", "chain"],
)
def test_long_executions_pause(
    model: Model, inputs: list[AnyArray], result: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, clock, pauses = prepare(model), itertools.count(step=2_000_000), list[float]()
    fake = SimpleNamespace(perf_counter_ns=lambda: next(clock), sleep=pauses.append)
    monkeypatch.setattr(paced_check, "time", fake)
    _, outputs = execute(prepared, inputs)
    assert len(pauses) >= 9
    np.testing.assert_array_equal(outputs[0], result)


def test_pause_ends_with_the_context() -> None:
    with pause_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_work_that_overlaps_does_not_prolong_the_pause() -> None:
    first, second = pause_collector(), pause_collector()
    with first:
        second.__enter__()
    assert gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_application_that_has_stopped_the_collector_keeps_it_stopped() -> None:
    gc.disable()
    try:
        with pause_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
