"""A model with replicas on two services of a fleet."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

import nnhal
import nnhal.aio
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import stop_running, worker_pids
from tests.fleet.pair import ADD, ONES, Pair


@pytest.fixture
def model(pair: Pair) -> Iterator[nnhal.ReplicatedModel]:
    with nnhal.Fleet(pair.hosts[0].target, timeout=60).prepare(ADD, replicas=2, cache=True) as model:
        yield model


def test_replicas_are_on_different_members_and_survive_one(pair: Pair, model: nnhal.ReplicatedModel) -> None:
    assert sorted(model.members) == ["a", "b"]
    with model.burst() as burst:
        kept = burst.keep(ONES)
        futures = [burst.submit([kept, ONES * number]) for number in range(8)]
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(60)[0], ONES * (number + 1))
        burst.release(kept)
        np.testing.assert_array_equal(burst.execute([kept, ONES])[0], 2 * ONES)
    futures = [model.submit([ONES, ONES * number]) for number in range(40)]
    pair.hosts[1].kill()
    futures += [model.submit([ONES, ONES * number]) for number in range(40, 80)]
    for number, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(60)[0], ONES * (number + 1))
    assert wait_until(lambda: model.members == ["a", "a"], 60), "the lost replica was prepared again"
    assert model.outstanding == [0, 0]
    np.testing.assert_array_equal(model.execute([ONES, ONES], deadline=60)[0], 2 * ONES)


async def test_replicas_for_asyncio_and_a_burst_with_a_kept_input(pair: Pair) -> None:
    fleet = nnhal.aio.Fleet(pair.hosts[0].target, timeout=60)
    async with await fleet.prepare(ADD, replicas=2, cache=True) as model:
        assert sorted(model.members) == ["a", "b"]
        async with model.burst() as burst:
            kept = burst.keep(ONES)
            tasks = [burst.submit([kept, ONES * number]) for number in range(40)]
            for number, task in enumerate(tasks):
                np.testing.assert_array_equal((await task)[0], ONES * (number + 1))
            await burst.release(kept)
        np.testing.assert_array_equal((await model.execute([ONES, ONES], deadline=60))[0], 2 * ONES)
        assert model.outstanding == [0, 0]


def test_an_execution_is_hedged_and_inputs_may_change(pair: Pair) -> None:
    """One service is frozen, so that only the copy that goes to the other one is answered."""
    with nnhal.Fleet(pair.hosts[0].target, timeout=60).prepare(ADD, replicas=2, hedge=0.05) as model:
        (worker,) = worker_pids(pair.hosts[0].service.process.pid)
        stop_running(worker)
        values = ONES.copy()
        futures = [model.submit([values, ONES]) for _ in range(10)]
        values += 1
        for future in futures:
            np.testing.assert_array_equal(future.result(60)[0], 2 * ONES)
        with suppress(ProcessLookupError):  # if all this took long, it counts as hanging, and has been replaced
            os.kill(worker, signal.SIGCONT)


def test_what_cannot_be_served_in_time_is_refused(model: nnhal.ReplicatedModel) -> None:
    while not all(replica.workload.expected_s for replica in model._replicas.replicas):
        model.execute([ONES, ONES])
    with pytest.raises(nnhal.HalError, match="MISSED_DEADLINE_TRANSIENT: the execution would take"):
        model.execute([ONES, ONES], deadline=1e-9)


def test_errors_of_the_model_are_not_repeated(model: nnhal.ReplicatedModel) -> None:
    with pytest.raises(nnhal.HalError, match="INVALID_ARGUMENT"):
        model.execute([ONES])
    assert model.outstanding == [0, 0]
    with pytest.raises(nnhal.HalError, match="replicas is 0"):
        nnhal.Fleet("localhost:1").prepare(ADD, replicas=0)
    with pytest.raises(TypeError, match="unexpected argument 'colour'"):
        nnhal.Fleet("localhost:1", colour="red")
