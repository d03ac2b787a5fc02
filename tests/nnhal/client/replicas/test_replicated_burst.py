"""Bursts on several replicas, without services: attempts, hedging, and inputs that are kept."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from nnhal.client.core.arrays import Outputs
from nnhal.client.replicas.aio.replicated_burst import DeviceReplica, ReplicatedBurst
from nnhal.client.replicas.kept_inputs import KeptInputs
from nnhal.client.replicas.replica_set import Replica, ReplicaSet
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import ErrorStatus

DEAD = DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "gone")
INVALID = HalError(ErrorStatus.INVALID_ARGUMENT, "wrong")


class Imagined:
    """Replicas that all answer in the order in which they are asked.

    Attributes:
        asked: for each attempt, the future of its outputs.
    """

    def __init__(self, count: int) -> None:
        self.asked: list[asyncio.Future[Any]] = []
        self.replicas = [cast(DeviceReplica, Replica(cast(Any, None), cast(Any, self))) for _ in range(count)]

    async def burst(self) -> "Imagined":
        return self

    def submit(self, inputs: object, deadline: float | None) -> "asyncio.Task[Any]":
        future = asyncio.get_running_loop().create_future()
        self.asked.append(future)

        async def attempt() -> Any:
            return await future

        return asyncio.create_task(attempt())

    async def close(self) -> None:
        pass

    async def execute(
        self, hedge: float | None, *answers: Callable[["asyncio.Future[Any]"], None]
    ) -> tuple[Outputs, list[int]]:
        """Execute once. Each answer is given as soon as there is an attempt for it."""
        replicas = ReplicaSet(self.replicas)
        async with ReplicatedBurst(replicas, hedge) as burst:
            task = burst.submit([])
            try:
                for number, answer in enumerate(answers):
                    while len(self.asked) <= number:
                        await asyncio.sleep(0)
                    answer(self.asked[number])
                return await task, replicas.outstanding
            finally:
                while sum(replicas.outstanding):
                    await asyncio.sleep(0)


def fails(error: HalError) -> "Callable[[asyncio.Future[Any]], None]":
    return lambda future: future.set_exception(error)


def gives(value: str) -> "Callable[[asyncio.Future[Any]], None]":
    return lambda future: future.set_result(value)


def waits(future: "asyncio.Future[Any]") -> None:
    pass


async def test_an_attempt_that_failed_with_its_service_is_repeated() -> None:
    assert await Imagined(3).execute(None, fails(DEAD), fails(DEAD), gives("third")) == ("third", [0, 0, 0])


@pytest.mark.parametrize("errors", [[DEAD, DEAD], [INVALID], [DEAD, INVALID]])
async def test_the_last_error_is_raised(errors: list[HalError]) -> None:
    imagined = Imagined(2)
    with pytest.raises(HalError) as caught:
        await imagined.execute(None, *map(fails, errors))
    assert caught.value is errors[-1] and len(imagined.asked) == len(errors)


async def test_the_first_answer_counts_and_the_other_attempt_is_cancelled() -> None:
    imagined = Imagined(2)
    outputs, _ = await imagined.execute(0.0, waits, gives("second"))
    assert outputs == "second"
    assert imagined.asked[0].cancelled()


async def test_a_hedged_attempt_that_fails_leaves_the_first_one() -> None:
    imagined = Imagined(2)

    def fail_second(second: "asyncio.Future[Any]") -> None:
        second.set_exception(DEAD)
        imagined.asked[0].set_result("first")

    outputs, _ = await imagined.execute(0.0, waits, fail_second)
    assert outputs == "first"


def test_each_burst_gets_its_own_copy_of_a_kept_input() -> None:
    kept: KeptInputs[str] = KeptInputs()
    copies = {"a": np.ones(2), "b": np.ones(2)}
    array, other = kept.add(copies), np.zeros(2)
    assert kept.of("b", [array, other, None])[0] is copies["b"]
    frozen = kept.frozen({"x": array, "y": other, "z": None})
    assert frozen["x"] is array and frozen["z"] is None
    assert frozen["y"] is not other and not frozen["y"].flags.writeable
    assert kept.of("b", frozen)["x"] is copies["b"]
    assert kept.remove(array) is copies and kept.remove(array) == {}
    assert kept.of("b", [array])[0] is array
