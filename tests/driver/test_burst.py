"""Bursts of the driver: identifiers, and one execution at a time."""

from collections.abc import Sequence

import numpy as np
import pytest

from driver.burst import Burst
from nnhal.errors import HalError
from nnhal.types import (
    DataLocation,
    ErrorKind,
    ErrorStatus,
    Memory,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
    UnsetUnion,
)
from tests.driver.held import TWICE
from tests.driver.one_operation import prepare


def burst(capacity: int = 10) -> Burst:
    prepared = prepare(TWICE).prepared_model
    assert prepared is not None
    return Burst(prepared, capacity)


def floats(*values: float) -> Memory:
    return Memory.of(np.array(values, np.float32))


def request(*pools: RequestMemoryPool) -> Request:
    inputs = tuple(RequestArgument(location=DataLocation(i, 0, 8)) for i in range(2))
    return Request(inputs, (RequestArgument(location=DataLocation(2)),), (*pools, ReturnedPool()))


def run(one: Burst, pools: Sequence[RequestMemoryPool], identifiers: Sequence[int]) -> list[float]:
    (data,) = one.execute_synchronously(request(*pools), identifiers).returned
    assert data is not None
    return list(data.view(np.float32))


def refused(
    status: ErrorStatus, one: Burst, pools: Sequence[RequestMemoryPool], identifiers: Sequence[int]
) -> HalError:
    with pytest.raises(HalError) as caught:
        one.execute_synchronously(request(*pools), identifiers)
    assert caught.value.status == status
    return caught.value


def test_the_memory_that_is_kept_counts() -> None:
    one = burst()
    assert run(one, [floats(1, 2), floats(3, 4)], [7, -1, -1]) == [4, 6]
    assert run(one, [UnsetUnion(), floats(10, 20)], [7, -1, -1]) == [11, 22]
    # another memory that comes with a known identifier is passed over
    assert run(one, [floats(100, 100), floats(0, 0)], [7, -1, -1]) == [1, 2]


def test_nothing_is_kept_without_an_identifier() -> None:
    one = burst()
    run(one, [floats(1, 2), floats(3, 4)], [-1, -1, -1])
    assert not one.keeps(-1)
    refused(ErrorStatus.INVALID_ARGUMENT, one, [UnsetUnion(), floats(3, 4)], [-1, -1, -1])


def test_a_released_memory_is_forgotten() -> None:
    one = burst()
    run(one, [floats(1, 2), floats(3, 4)], [0, 1, -1])
    one.release_memory_resource(0)
    refused(ErrorStatus.INVALID_ARGUMENT, one, [UnsetUnion(), UnsetUnion()], [0, 1, -1])
    assert run(one, [floats(5, 5), UnsetUnion()], [0, 1, -1]) == [8, 9]


def test_releasing_what_is_not_there_does_no_harm() -> None:
    one = burst()
    one.release_memory_resource(-1)
    one.release_memory_resource(12)
    with pytest.raises(HalError, match="-2"):
        one.release_memory_resource(-2)


@pytest.mark.parametrize("identifiers", [[-2, -1, -1], [-1, -1], [-1] * 4, []])
def test_identifiers_that_cannot_be(identifiers: list[int]) -> None:
    refused(ErrorStatus.INVALID_ARGUMENT, burst(), [floats(1, 2), floats(3, 4)], identifiers)


def test_returned_pools_are_never_kept() -> None:
    one = burst()
    for value in (1, 2):
        assert run(one, [floats(value, 0), floats(0, 0)], [-1, -1, 3]) == [value, 0]
    assert not one.keeps(3)


def test_a_memory_is_kept_even_when_its_execution_fails() -> None:
    one = burst()
    refused(ErrorStatus.INVALID_ARGUMENT, one, [floats(1, 2), floats(1)], [4, -1, -1])
    assert run(one, [UnsetUnion(), floats(0, 0)], [4, -1, -1]) == [1, 2]


def test_as_many_memories_as_there_may_be() -> None:
    one = burst(capacity=1)
    error = refused(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, one, [floats(1, 2), floats(3, 4)], [0, 1, -1])
    assert (error.kind, error.limit) == (ErrorKind.LIMIT, "burst_memories")
    one.release_memory_resource(0)
    assert run(one, [floats(1, 2), floats(3, 4)], [1, -1, -1]) == [4, 6]


def test_one_execution_at_a_time() -> None:
    one = burst()
    with one.alone():
        refused(ErrorStatus.GENERAL_FAILURE, one, [floats(1, 2), floats(3, 4)], [-1] * 3)
    assert run(one, [floats(1, 2), floats(3, 4)], [-1] * 3) == [4, 6]
