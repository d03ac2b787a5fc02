"""Operations on constants run in a partition that reads their results."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal import ModelBuilder
from nnhal.builder.graph import OperandRef
from nnhal.types import Model, Operand, Placement
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.compilation.constant_operations import constant_operations
from nnhal_driver.compilation.placement import place
from nnhal_driver.graph import build_graphs
from tests.driver.fake_backend import Fake, device_of, parts
from tests.driver.one_operation import execute, prepare

SIDE = 300
LARGE = Operand(T.TENSOR_FLOAT32, (SIDE, SIDE))


class Chain(ModelBuilder):
    """Builder of models of large tensors: `x` is the input, and operations read it or constants."""

    def __init__(self) -> None:
        super().__init__()
        self.x = self.input(LARGE.type, LARGE.dimensions)

    def weights(self, type_: Op = Op.ABS) -> OperandRef:
        return self.add(type_, np.full((SIDE, SIDE), -2, np.float32), output=LARGE)

    def binary(self, type_: Op, a: OperandRef, b: OperandRef) -> OperandRef:
        return self.add(type_, a, b, *([0] if type_ == Op.ADD else []), output=LARGE)


def place_on(model: Model, *backends: Backend, merge: bool = True) -> Placement:
    return place(build_graphs(model), backends, merge=merge)


def compute(model: Model, *backends: Backend) -> Sequence[float]:
    with device_of(*backends) as device:
        return [output.flat[0] for output in execute(prepare(model, device), [np.ones((SIDE, SIDE), np.float32)])[1]]


def test_constant_operations_include_those_of_their_results() -> None:
    build = Chain()
    weights = build.add(Op.FLOOR, build.weights(), output=LARGE)
    build.output(build.binary(Op.ADD, build.x, weights))
    assert constant_operations(build_graphs(build.build())[0]) == {0, 1}


def test_operation_joins_its_reader() -> None:
    """Alone it would pay for a partition of its own on A, which supports it."""
    build = Chain()
    weights = build.weights()
    build.output(build.binary(Op.MAXIMUM, build.x, weights))
    model = build.build()
    placement = place_on(model, Fake("A", [Op.ABS, Op.ADD]), CpuRef())
    assert parts(placement) == [("CpuRef", (0, 1))]
    (refusal,) = placement.operations[0].refusals
    assert refusal.reason == "merged: it only reads constants, and joins the partition that reads its result"
    assert parts(place_on(model, Fake("A", [Op.ABS, Op.ADD]), CpuRef(), merge=False)) == [("A", (0,)), ("CpuRef", (1,))]


def test_operation_joins_the_first_of_several_readers() -> None:
    """It cannot join both, and 2, which needs the result of 1, must not wait for itself."""
    build = Chain()
    weights = build.weights()
    first = build.binary(Op.MAXIMUM, build.x, weights)
    build.output(build.binary(Op.ADD, first, weights))
    model = build.build()
    fake = Fake("A", [Op.ABS, Op.ADD])
    assert parts(place_on(model, fake, CpuRef())) == [("CpuRef", (0, 1)), ("A", (2,))]
    assert compute(model, fake, CpuRef()) == compute(model, CpuRef()) == [4]


def test_shared_weights_do_not_separate_partitions() -> None:
    """1 and 3 run on A before and after CpuRef; both read 0."""
    build = Chain()
    weights = build.weights()
    x = build.binary(Op.ADD, build.x, weights)
    x = build.binary(Op.MAXIMUM, x, build.x)
    build.output(build.binary(Op.ADD, x, weights))
    assert parts(place_on(build.build(), Fake("A", [Op.ABS, Op.ADD]), CpuRef())) == [
        ("A", (0, 1)),
        ("CpuRef", (2,)),
        ("A", (3,)),
    ]


def test_operation_that_its_reader_does_not_support_joins_the_partition_before() -> None:
    build = Chain()
    x = build.binary(Op.MAXIMUM, build.x, build.x)
    build.output(build.binary(Op.ADD, x, build.weights(Op.FLOOR)))
    assert parts(place_on(build.build(), Fake("A", [Op.ADD]), CpuRef())) == [("CpuRef", (0, 1)), ("A", (2,))]


def test_operations_that_no_reader_supports_run_first() -> None:
    build = Chain()
    for _ in range(2):
        weights = build.add(Op.FLOOR, build.weights(Op.EXP), output=LARGE)
        build.output(build.binary(Op.ADD, build.x, weights))
    model = build.build()
    fakes = Fake("A", [Op.ADD]), Fake("B", [Op.EXP]), Fake("C", [Op.FLOOR])
    assert parts(place_on(model, *fakes)) == [("B", (0, 3)), ("C", (1, 4)), ("A", (2, 5))]
    assert compute(model, *fakes) == compute(model, CpuRef())


def test_result_that_is_only_an_output_joins_a_partition_of_the_first_supporter() -> None:
    build = Chain()
    build.output(build.binary(Op.MAXIMUM, build.binary(Op.ADD, build.x, build.x), build.x))
    build.output(build.weights())
    assert parts(place_on(build.build(), Fake("A", [Op.ABS, Op.ADD]), CpuRef())) == [("A", (0, 2)), ("CpuRef", (1,))]


def test_unsupported_operation_is_reported() -> None:
    build = Chain()
    build.output(build.binary(Op.ADD, build.x, build.weights()))
    placement = place_on(build.build(), Fake("A", [Op.ADD]))
    assert parts(placement) == [("A", (1,))]
    assert placement.operations[0].backend == "" and placement.operations[0].refusals[0].reason == "not mine"


@pytest.mark.parametrize("readers", [1, 3])
def test_many_operations_are_placed_in_linear_time(readers: int) -> None:
    """Each of 3,000 operations is asked about once, although no backend of a reader supports it."""
    build = ModelBuilder()
    small = Operand(T.TENSOR_FLOAT32, (2,))
    x = build.input(small.type, small.dimensions)
    for i in range(3_000 // readers):
        weights = build.add((Op.ABS, Op.FLOOR)[i % 2], np.ones(2, np.float32), output=small)
        for _ in range(readers):
            x = build.add(Op.ADD, x, weights, 0, output=small)
    build.output(x)
    fakes = Fake("A", [Op.ADD]), Fake("B", [Op.ABS]), Fake("C", [Op.FLOOR])
    placement = place_on(build.build(), *fakes)
    assert len(parts(placement)) == 3
    assert all(len(fake.asked) == len(set(fake.asked)) for fake in fakes)
