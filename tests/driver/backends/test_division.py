"""Large arrays are computed in blocks, with a check before each and with the same results."""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhal.builder import ModelBuilder
from nnhal.errors import HalError, general_failure
from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    Memory,
    OperandType,
    OperationType,
    Request,
    RequestArgument,
    ReturnedPool,
)
from nnhal_driver.backends import division
from nnhal_driver.backends.division import DividedCall, blocks, divide, look_up, plain
from nnhal_driver.backends.reference.kernel import KERNELS
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.graph import build_graphs
from nnhal_driver.operations import infer
from nnhal_driver.scheduling.cancellation import Cancellation
from tests.driver.one_operation import float_tensor, int32, model_of, prepare, tensor

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "LARGE", 8)
    monkeypatch.setattr(division, "BLOCK", 5)


class Counter:
    """Counts checks, and ends the run at one of them."""

    def __init__(self, last: int = 0) -> None:
        self.count = 0
        self._last = last

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._last:
            raise general_failure("the end")

    def end(self) -> None:
        """End the run at its next check."""
        self._last = self.count + 1


def numbers(*shape: int) -> AnyArray:
    """Return different numbers, positive and negative."""
    return np.random.default_rng(prod(shape)).standard_normal(shape).astype(np.float32)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "ufunc": lambda x: np.exp(x) + x,
    "broadcast": lambda x: x + numbers(4, 1) * np.float32(2),
    "two outputs": lambda x: np.frexp(x)[1],
    "in place": lambda x: np.add(x.copy(), 1, out=np.empty_like(x)),
    "astype": lambda x: x.astype(np.int64),
    "where": lambda x: np.where(x > 0, x, 0),
    "clip": lambda x: np.clip(x, -1, 1),
    "max of columns": lambda x: x.max(axis=1),
    "any of all": lambda x: (x > 2).any(),
    "keepdims": lambda x: np.abs(x).min(axis=0, keepdims=True),
    "integer sum": lambda x: (x * 10).astype(np.int64).sum(axis=(0, 2)),
    "cumsum": lambda x: np.cumsum(x, axis=2),
    "accumulate": lambda x: np.multiply.accumulate(x, axis=0),
    "reduceat": lambda x: np.fmax.reduceat(x, [0, 2], axis=1),
    "argmax": lambda x: x.argmax(axis=2),
    "argmin of all": lambda x: x.argmin(),
    "ties": lambda x: np.argmax(np.sign(x), axis=1),
    "concatenate": lambda x: np.concatenate([x, 2 * x], axis=1),
    "stack": lambda x: np.stack([x, 2 * x], axis=1),
    "tile": lambda x: np.tile(x, (2, 1, 3)),
    "repeat": lambda x: np.repeat(x, 3, axis=1),
    "take": lambda x: np.take(x, np.array([[2, 0], [1, 1]]), axis=1),
    "search": lambda x: np.searchsorted(np.array([-1, 0, 1], np.float32), x, side="right"),
    "transpose": lambda x: x.transpose(2, 0, 1).reshape(-1),
    "full": lambda x: np.full_like(x, 3, order="C", shape=(4, 5)),
    "look up": lambda x: look_up(np.arange(9), (np.abs(x) * 2).astype(np.int64)),
    "select": lambda x: x[np.array([[0, 1]]), np.array([[2], [1]])],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_the_same_bits_and_can_end_early(name: str) -> None:
    array, counter = numbers(3, 4, 6), Counter()
    expected = FUNCTIONS[name](array)
    result = FUNCTIONS[name](divide(array, counter))
    assert np.asarray(result).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(plain(result), expected, strict=True)
    assert counter.count > 2
    for last in (1, counter.count):
        with pytest.raises(HalError, match="the end"):
            FUNCTIONS[name](divide(array, Counter(last)))


def test_assignment_reaches_the_array() -> None:
    array, counter = np.zeros((6, 6), np.float32), Counter()
    divide(array, counter)[1:5, ::2] = numbers(4, 3)
    np.testing.assert_array_equal(array[1:5, ::2], numbers(4, 3))
    assert counter.count > 2


@given(SHAPES, st.integers(1, 20), st.randoms())
def test_blocks_cover_a_shape_once(shape: tuple[int, ...], limit: int, random: Any) -> None:
    axes = random.sample(range(len(shape)), len(shape))
    covered = np.zeros(shape, np.int64)
    for region in blocks(shape, axes, limit):
        assert covered[region].size <= limit
        covered[region] += 1
    assert (covered == 1).all()


def _cases() -> Iterator[tuple[OperationType, Sequence[Any], Sequence[Any]]]:
    float_, byte = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM
    stored = tensor(byte, (4, 6), 0.1, 3), np.arange(24).reshape(4, 6)
    small = float_tensor([[1.0]])
    x = float_tensor(numbers(4, 6))
    yield OperationType.POW, [float_tensor(np.abs(numbers(4, 6))), small], [tensor(float_)]
    yield OperationType.ADD, [x, float_tensor(numbers(6)), int32(1)], [tensor(float_)]
    yield OperationType.ADD, [stored, stored, int32(0)], [tensor(byte, (), 0.2, 1)]
    yield OperationType.RELU, [x], [tensor(float_)]
    yield OperationType.TOPK_V2, [x, int32(3)], [tensor(float_), tensor(OperandType.TENSOR_INT32)]
    yield OperationType.TILE, [small, (tensor(OperandType.TENSOR_INT32, (2,)), [5, 4])], [tensor(float_)]
    yield (
        OperationType.RANDOM_MULTINOMIAL,
        [
            float_tensor(numbers(2, 3)),
            int32(9),
            (tensor(OperandType.TENSOR_INT32, (2,)), [1, 2]),
        ],
        [tensor(OperandType.TENSOR_INT32)],
    )


@pytest.mark.parametrize("case", list(_cases()), ids=lambda case: case[0].name)
def test_kernels_give_the_same_bits(
    case: tuple[OperationType, Sequence[Any], Sequence[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    type_, inputs, outputs = case
    results, counts = [], []
    for large in (2**31, 8):
        monkeypatch.setattr(division, "LARGE", large)
        view = build_graphs(model_of(type_, inputs, outputs, constants=False))[0].operations[0]
        values = [np.asarray(value, DTYPES[o.type]) for o, value in inputs]
        counter = Counter()
        call = DividedCall(view, [*values, *(None for _ in outputs)], {}, check=counter)
        call.expect(infer(call, [()] * len(outputs)))
        result = KERNELS[type_](call)
        results.append([result] if isinstance(result, np.ndarray) else result)
        counts.append(counter.count)
    for divided, whole in zip(results[1], results[0], strict=True):
        assert type(divided) is np.ndarray
        np.testing.assert_array_equal(divided, whole, strict=True)
    assert counts[1] > counts[0]


def test_later_runs_do_not_end_with_the_run_that_kept_a_value() -> None:
    """The check of a run fails for good once its client has got its answer."""
    float_ = OperandType.TENSOR_FLOAT32
    x, weights = float_tensor(numbers(4, 6)), float_tensor(numbers(4, 6) + 1)
    model = model_of(OperationType.MAXIMUM, [x, weights], [tensor(float_)])
    view = build_graphs(model)[0].operations[0]
    values, memo = [np.asarray(value, np.float32) for _, value in (x, weights)], dict[str, object]()

    def twice(check: Callable[[], None]) -> AnyArray:
        call = DividedCall(view, [*values, None], memo, check=check)
        doubled: AnyArray = call.memoize_constant("doubled", lambda: call.array("input1") * 2, "input1")
        return np.asarray(plain(doubled + 1))

    expected = values[1] * 2 + 1
    ended = Counter()
    np.testing.assert_array_equal(twice(ended), expected)
    ended.end()
    later = Counter()
    np.testing.assert_array_equal(twice(later), expected)
    assert later.count > 1, "it is divided"


def test_quantized_convolution_runs_again_after_its_first_call_has_ended() -> None:
    byte, rng = OperandType.TENSOR_QUANT8_ASYMM, np.random.default_rng(1)
    image = tensor(byte, (1, 5, 5, 3), 0.5, 3)
    weights = tensor(byte, (4, 3, 3, 3), 0.25, 7), rng.integers(0, 256, (4, 3, 3, 3))
    bias = tensor(OperandType.TENSOR_INT32, (4,), 0.125), rng.integers(-99, 99, 4)
    b = ModelBuilder()
    x = b.input(byte, image.dimensions, scale=image.scale, zero_point=image.zero_point)
    constants = [
        b.constant(value.astype(DTYPES[o.type]), o.type, scale=o.scale, zero_point=o.zero_point)
        for o, value in (weights, bias)
    ]
    b.output(b.add(OperationType.CONV_2D, x, *constants, 1, 1, 1, 0, output=tensor(byte, (1, 5, 5, 4), 4.0, 128)))
    prepared = prepare(b.build()).prepared_model
    assert prepared is not None
    pools = (Memory.of(rng.integers(0, 256, image.dimensions).astype(np.uint8)), ReturnedPool())
    arguments = (RequestArgument(False, DataLocation(0, 0, 75)),), (RequestArgument(False, DataLocation(1)),)
    results = []
    for _ in range(3):
        call = ExecutionCall(cancellation=Cancellation())
        results.append(prepared.execute_synchronously(Request(*arguments, pools), call=call).returned[0])
        call.cancellation.cancel()  # as gRPC does at the end of each call
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])
