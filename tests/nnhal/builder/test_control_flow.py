"""GraphBuilder: IF and WHILE."""

from collections.abc import Callable

import numpy as np
import pytest

from nnhal import ModelBuilder
from nnhal.builder import OperandRef, SubgraphBuilder
from nnhal.types import (
    Operand,
    OperandLifeTime,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.nnhal.builder.models import F32, FLAG, PAIR, QUANT, adding, assert_rejected, below, of_lifetime, run


@pytest.mark.parametrize(("flag", "expected"), [(True, [11, 12]), (False, [101, 102])])
def test_if(flag: bool, expected: list[int]) -> None:
    b = ModelBuilder()
    condition, x = b.input(T.TENSOR_BOOL8, [1]), b.input(F32, [2])
    b.output(b.add(Op.IF, condition, adding(b, 10), adding(b, 100), x, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([flag]), np.array([1, 2], np.float32))[0], expected)


def test_while() -> None:
    b = ModelBuilder()
    x = b.input(F32, [2])
    b.output(b.add(Op.WHILE, below(b, 5), adding(b, 2), x, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([0, 1], np.float32))[0], [6, 7])


def test_values_given_as_arrays_and_subgraphs_within_subgraphs() -> None:
    b = ModelBuilder()
    ten, hundred = adding(b, 10), adding(b, 100)
    with b.subgraph() as twice:
        y = twice.input(F32, [2])
        for _ in range(2):
            y = twice.add(Op.IF, np.array([True]), ten, hundred, y, output=PAIR)
        twice.output(y)
    b.output(b.add(Op.IF, [False], ten, twice, [1, 2], output=PAIR))
    model = b.build()
    assert len(of_lifetime(model.referenced[2], OperandLifeTime.SUBGRAPH)) == 2
    np.testing.assert_array_equal(run(b)[0], [21, 22])


def test_unknown_shapes_match_any() -> None:
    b = ModelBuilder()
    condition, x = b.input(T.TENSOR_BOOL8, [1]), b.input(F32, [2])
    with b.subgraph() as unknown_rank:
        y = unknown_rank.input(F32)
        unknown_rank.output(unknown_rank.add(Op.ADD, y, y, 0, output=Operand(F32)))
    with b.subgraph() as unknown_length:
        y = unknown_length.input(F32, [0])
        unknown_length.output(unknown_length.add(Op.RELU, y, output=Operand(F32, (0,))))
    b.output(b.add(Op.IF, condition, unknown_rank, unknown_length, x, output=PAIR))
    np.testing.assert_array_equal(run(b, np.array([True]), np.array([1, 2], np.float32))[0], [2, 4])


def shaped(b: ModelBuilder, inputs: list[Operand], outputs: int, result: Operand = PAIR) -> SubgraphBuilder:
    """Return a subgraph of any form: each output is an operation of an extension."""
    type_ = b.extension("org.example.shapes").operation_type(0)
    with b.subgraph() as graph:
        refs = [graph.input(o.type, o.dimensions, scale=o.scale, zero_point=o.zero_point) for o in inputs]
        for _ in range(outputs):
            graph.output(graph.add(type_, *refs, output=result))
    return graph


CONTROL_FLOW_CASES: list[tuple[str, str, Callable[[ModelBuilder, OperandRef, OperandRef], object]]] = [
    (
        "V-OPERATION-06",
        "has 1 inputs and 1 outputs, must have at least 3 and 1",
        lambda b, c, x: b.add(Op.IF, c, output=PAIR),
    ),
    (
        "V-OPERATION-06",
        r"has TENSOR_FLOAT32 with dimensions \(2,\) as input 0, must be TENSOR_BOOL8 with dimensions \(1,\)",
        lambda b, c, x: b.add(Op.IF, x, adding(b, 1), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-06",
        r"has TENSOR_BOOL8 with dimensions \(2,\) as input 0, must be",
        lambda b, c, x: b.add(Op.IF, [True, False], adding(b, 1), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-06",
        "has TENSOR_FLOAT32 as input 2, must be SUBGRAPH",
        lambda b, c, x: b.add(Op.IF, c, adding(b, 1), x, x, output=PAIR),
    ),
    (
        "V-OPERATION-07",
        r"has 2 values, but its then branch \(referenced subgraph 0\) takes 1",
        lambda b, c, x: b.add(Op.IF, c, adding(b, 1), adding(b, 1), x, x, output=PAIR),
    ),
    (
        "V-OPERATION-07",
        r"needs 1 outputs, but its else branch \(referenced subgraph 1\) gives 2",
        lambda b, c, x: b.add(Op.IF, c, shaped(b, [PAIR], 1), shaped(b, [PAIR], 2), x, output=PAIR),
    ),
    (
        "V-OPERATION-13",
        r"has input 3 unlike input 0 of its else branch \(referenced subgraph 1\): dimension 0 is 2, not 3",
        lambda b, c, x: b.add(Op.IF, c, shaped(b, [PAIR], 1), shaped(b, [Operand(F32, (3,))], 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-13",
        r"has output 0 unlike output 0 of its then branch .*: type TENSOR_FLOAT32, not TENSOR_QUANT8_ASYMM",
        lambda b, c, x: b.add(Op.IF, c, shaped(b, [PAIR], 1, QUANT), shaped(b, [PAIR], 1, QUANT), x, output=PAIR),
    ),
    (
        "V-OPERATION-09",
        "has TENSOR_BOOL8 as input 0, must be SUBGRAPH",
        lambda b, c, x: b.add(Op.WHILE, c, adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-10",
        r"has TENSOR_FLOAT32 .* as output of its condition \(referenced subgraph 0\)",
        lambda b, c, x: b.add(Op.WHILE, adding(b, 1), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-10",
        r"has 1 values, but its condition \(referenced subgraph 0\) takes 2",
        lambda b, c, x: b.add(Op.WHILE, shaped(b, [PAIR, PAIR], 1, FLAG), adding(b, 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-11",
        r"has 1 values, but its body \(referenced subgraph 1\) takes 2",
        lambda b, c, x: b.add(Op.WHILE, below(b, 1), shaped(b, [PAIR, PAIR], 1), x, output=PAIR),
    ),
    (
        "V-OPERATION-11",
        r"has 1 outputs and 1 values, but its body \(referenced subgraph 1\) gives 2, must be between",
        lambda b, c, x: b.add(Op.WHILE, below(b, 1), shaped(b, [PAIR], 2), x, output=PAIR),
    ),
    (
        "V-OPERATION-13",
        r"has output 0 of its body \(referenced subgraph 1\) unlike its input 0: type TENSOR_QUANT8_ASYMM",
        lambda b, c, x: b.add(Op.WHILE, below(b, 1), shaped(b, [PAIR], 1, QUANT), x, output=QUANT),
    ),
    (
        "",
        "input 1 is referenced subgraph 0, which is not complete",
        lambda b, c, x: b.add(Op.IF, c, b.subgraph(), adding(b, 1), x, output=PAIR),
    ),
    (
        "",
        "input 1 is main; IF and WHILE run subgraphs that `subgraph` creates",
        lambda b, c, x: b.add(Op.IF, c, b, b, x, output=PAIR),
    ),
    (
        "",
        "input 1 is referenced subgraph 0 of another model's builder",
        lambda b, c, x: b.add(Op.IF, c, adding(ModelBuilder(), 1), adding(b, 1), x, output=PAIR),
    ),
    ("", "input 0 is None, whose type is not known", lambda b, c, x: b.add(Op.IF, None, c, c, output=PAIR)),
    (
        "V-OPERATION-04",
        r"input 0 \(input0\) is SUBGRAPH, not TENSOR_FLOAT32",
        lambda b, c, x: b.add(Op.ADD, adding(b, 1), x, 0, output=PAIR),
    ),
]


@pytest.mark.parametrize(("rule", "complaint", "build"), CONTROL_FLOW_CASES)
def test_invalid_control_flow_is_rejected(
    rule: str, complaint: str, build: Callable[[ModelBuilder, OperandRef, OperandRef], object]
) -> None:
    b = ModelBuilder()
    condition, x = b.input(T.TENSOR_BOOL8, [1], name="c"), b.input(F32, [2], name="x")
    assert_rejected(lambda: build(b, condition, x), rule, complaint)
