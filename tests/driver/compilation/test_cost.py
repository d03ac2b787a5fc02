"""Estimates of the work of operations, by counting."""

from collections.abc import Sequence
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnhal.tflite
from nnhal.types import Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.compilation import cost
from nnhal_driver.compilation.cost import SLOW_NS, divide_long, estimate_duration_ns, estimate_steps
from nnhal_driver.graph import build_graphs
from nnhal_driver.operations.multiply_adds import LONG_STEPS, PASSES, SORTING, STEP
from tests.benchmark.figures import model_path
from tests.driver.one_operation import (
    Value,
    boolean,
    device,
    execute,
    float32,
    int32,
    int_tensor,
    model_of,
    prepare,
    sample,
    tensor,
)

F32, I32 = T.TENSOR_FLOAT32, T.TENSOR_INT32


def shaped(*shape: int, type_: T = F32) -> Value:
    """Return a tensor without values."""
    return tensor(type_, shape), np.zeros(0)


WINDOW = [int32(n) for n in (0, 0, 0, 0, 1, 1, 3, 5, 0)]
CELL = [shaped(4, 3), shaped(4, 4), shaped(4), shaped(2, 4), int32(0), int32(0)]
BOXES = [float32(0), int32(3), int32(0), float32(0.5), float32(1), float32(0)]
CASES: list[tuple[Op, Sequence[Value], Sequence[Operand], int]] = [
    (Op.POW, [shaped(8, 9), shaped(9)], [tensor(F32, (8, 9))], 0),
    (Op.FULLY_CONNECTED, [shaped(5, 7), shaped(11, 7), shaped(11), int32(0)], [tensor(F32, (5, 11))], 5 * 7 * 11),
    (Op.TOPK_V2, [shaped(4, 50), int32(2)], [tensor(F32, (4, 2)), tensor(I32, (4, 2))], 200 * SORTING),
    (Op.AVERAGE_POOL_2D, [shaped(1, 8, 8, 2), *WINDOW], [tensor(F32, (1, 4, 6, 2))], 4 * 48 * (3 + 5)),
    (
        Op.UNIDIRECTIONAL_SEQUENCE_RNN,
        [shaped(2, 6, 3), *CELL],
        [tensor(F32, (2, 6, 4))],
        6 * STEP + 12 * (4 * 3 + 4 * 4),
    ),
    (
        Op.BOX_WITH_NMS_LIMIT,
        [shaped(10, 2), shaped(10, 8), shaped(10, type_=I32), *BOXES],
        [tensor(F32, (3,)), tensor(F32, (3, 4)), tensor(I32, (3,)), tensor(I32, (3,))],
        2 * (10 * SORTING + 3 * (STEP + 10 * 32)),
    ),
]


@pytest.mark.parametrize(("type_", "inputs", "outputs", "expected"), CASES, ids=[case[0].name for case in CASES])
def test_work_and_passes(type_: Op, inputs: Sequence[Value], outputs: Sequence[Operand], expected: int) -> None:
    graph = build_graphs(model_of(type_, inputs, outputs, constants=False))[0]
    tensors = [o.dimensions for o, _ in inputs if o.dimensions] + [o.dimensions for o in outputs]
    units = expected + PASSES * sum(map(prod, tensors))
    assert estimate_steps(graph.operations[0]) == units
    assert estimate_duration_ns([graph]) == units * SLOW_NS


def test_samples_count_without_declared_output() -> None:
    """The shape of an output may be unknown before the execution. The number of samples is a constant."""
    inputs = [shaped(1, 64), int32(2**26), int_tensor([1, 2])]
    graph = build_graphs(model_of(Op.RANDOM_MULTINOMIAL, inputs, [tensor(I32)], constants=False))[0]
    assert estimate_duration_ns([graph]) > 2**26 * 50


def test_passes_over_known_tensors_count_if_the_output_is_unknown() -> None:
    model = model_of(
        Op.RESIZE_BILINEAR, [shaped(1, 4, 4, 2), int32(9), int32(9), boolean(False)], [tensor(F32)], constants=False
    )
    assert estimate_steps(build_graphs(model)[0].operations[0]) == PASSES * 32


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_long_partitions_are_divided_in_order(lengths: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "LONG_STEPS", 9)
        patch.setattr(cost, "estimate_steps", lambda view: lengths[view])
        graph: Any = SimpleNamespace(operations=range(len(lengths)))
        parts = list(divide_long(graph, range(len(lengths))))
    assert [i for part in parts for i in part] == list(range(len(lengths)))
    work = [sum(lengths[i] for i in part) for part in parts]
    assert max(work) <= 9
    assert all(a + lengths[part[0]] > 9 for a, part in zip(work, parts[1:], strict=False))


@pytest.mark.parametrize("name", ["kws_ref_model", "mobilenet_v2_1.0_224_quant", "trained_lstm", "vww_96_float"])
def test_divided_partitions_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nnhal.tflite.load(model_path(name))
    results, counts = [], []
    for limit in (LONG_STEPS, 2**22):
        monkeypatch.setattr(cost, "LONG_STEPS", limit)
        outcome = prepare(model, device("CpuAcc"))
        assert outcome.prepared_model is not None
        rng = np.random.default_rng(0)
        results.append(execute(outcome, [sample(rng, operand) for operand in outcome.prepared_model.inputs])[1])
        counts.append(len(outcome.prepared_model.plan.nodes))
    assert counts[0] == 1
    assert counts[1] > 1 or name == "kws_ref_model"
    for divided, whole in zip(results[1], results[0], strict=True):
        np.testing.assert_array_equal(divided, whole)
