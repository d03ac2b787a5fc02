"""Bursts of the driver: memory identifiers, and one execution at a time."""

from collections.abc import Sequence

import numpy as np
import pytest

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
from nnhal_driver.execution.burst import Burst
from tests.driver.blocking_backend import TWICE
from tests.driver.one_operation import prepare


def make_burst(capacity: int = 10) -> Burst:
    prepared = prepare(TWICE).prepared_model
    assert prepared is not None
    return Burst(prepared, capacity)


def floats(*values: float) -> Memory:
    return Memory.of(np.array(values, np.float32))


def request(*pools: RequestMemoryPool) -> Request:
    inputs = tuple(RequestArgument(location=DataLocation(i, 0, 8)) for i in range(2))
    return Request(inputs, (RequestArgument(location=DataLocation(2)),), (*pools, ReturnedPool()))


def run(burst: Burst, pools: Sequence[RequestMemoryPool], identifiers: Sequence[int]) -> list[float]:
    (data,) = burst.execute_synchronously(request(*pools), identifiers).returned
    assert data is not None
    return list(data.view(np.float32))


def rejection(
    status: ErrorStatus, burst: Burst, pools: Sequence[RequestMemoryPool], identifiers: Sequence[int]
) -> HalError:
    with pytest.raises(HalError) as caught:
        burst.execute_synchronously(request(*pools), identifiers)
    assert caught.value.status == status
    return caught.value


def test_cached_memory_takes_precedence() -> None:
    burst = make_burst()
    assert run(burst, [floats(1, 2), floats(3, 4)], [7, -1, -1]) == [4, 6]
    assert run(burst, [UnsetUnion(), floats(10, 20)], [7, -1, -1]) == [11, 22]
    # another memory with a known identifier is ignored
    assert run(burst, [floats(100, 100), floats(0, 0)], [7, -1, -1]) == [1, 2]


def test_nothing_is_cached_without_an_identifier() -> None:
    burst = make_burst()
    run(burst, [floats(1, 2), floats(3, 4)], [-1, -1, -1])
    assert not burst.is_cached(-1)
    rejection(ErrorStatus.INVALID_ARGUMENT, burst, [UnsetUnion(), floats(3, 4)], [-1, -1, -1])


def test_released_memory_is_removed() -> None:
    burst = make_burst()
    run(burst, [floats(1, 2), floats(3, 4)], [0, 1, -1])
    burst.release_memory_resource(0)
    rejection(ErrorStatus.INVALID_ARGUMENT, burst, [UnsetUnion(), UnsetUnion()], [0, 1, -1])
    assert run(burst, [floats(5, 5), UnsetUnion()], [0, 1, -1]) == [8, 9]


def test_release_of_an_unknown_memory_does_nothing() -> None:
    burst = make_burst()
    burst.release_memory_resource(-1)
    burst.release_memory_resource(12)
    with pytest.raises(HalError, match="-2"):
        burst.release_memory_resource(-2)


@pytest.mark.parametrize("identifiers", [[-2, -1, -1], [-1, -1], [-1] * 4, []])
def test_invalid_identifiers_are_rejected(identifiers: list[int]) -> None:
    rejection(ErrorStatus.INVALID_ARGUMENT, make_burst(), [floats(1, 2), floats(3, 4)], identifiers)


def test_returned_pools_are_never_cached() -> None:
    burst = make_burst()
    for value in (1, 2):
        assert run(burst, [floats(value, 0), floats(0, 0)], [-1, -1, 3]) == [value, 0]
    assert not burst.is_cached(3)


def test_memory_is_cached_even_when_its_execution_fails() -> None:
    burst = make_burst()
    rejection(ErrorStatus.INVALID_ARGUMENT, burst, [floats(1, 2), floats(1)], [4, -1, -1])
    assert run(burst, [UnsetUnion(), floats(0, 0)], [4, -1, -1]) == [1, 2]


def test_number_of_memories_is_limited() -> None:
    burst = make_burst(capacity=1)
    error = rejection(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, burst, [floats(1, 2), floats(3, 4)], [0, 1, -1])
    assert (error.kind, error.limit) == (ErrorKind.LIMIT, "burst_memories")
    burst.release_memory_resource(0)
    assert run(burst, [floats(1, 2), floats(3, 4)], [1, -1, -1]) == [4, 6]


def test_one_execution_at_a_time() -> None:
    burst = make_burst()
    with burst.exclusive:
        rejection(ErrorStatus.GENERAL_FAILURE, burst, [floats(1, 2), floats(3, 4)], [-1] * 3)
    assert run(burst, [floats(1, 2), floats(3, 4)], [-1] * 3) == [4, 6]
