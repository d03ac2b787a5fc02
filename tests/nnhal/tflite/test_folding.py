"""Evaluators of constants, each on the models of the corpus, and the stage that uses them."""

from dataclasses import replace

import numpy as np
import pytest

from nnhal import tflite
from nnhal.tflite.fold import fold
from nnhal.tflite.folding.evaluator import EVALUATORS, GraphCall
from nnhal.tflite.graph import TfliteGraph
from nnhal.tflite.reader import read
from nnhal.tflite_schema.shapes.rule import INFERENCE_ERRORS
from nnhal.types import AnyArray, OperandLifeTime, operation_name
from tests.nnhal.tflite.build import Op, Tensor, build, ints, listing, options, schema
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, Case, cases
from tests.nnhal.tflite.corpus.exceptions import crash, litert_error

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

NAMES = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
EVALUATED = sorted(NAMES[code] for code in EVALUATORS)


def run_litert(case: Case, arrays: list[AnyArray]) -> list[AnyArray] | None:
    """Return the results of LiteRT's reference kernels or, where it has none, of the others; None if both fail."""
    types = interpreter.OpResolverType
    results = (run_kernels(case, arrays, types.BUILTIN_REF), run_kernels(case, arrays, types.BUILTIN))
    return next((result for result in results if result is not None), None)


def run_kernels(case: Case, arrays: list[AnyArray], resolver: object) -> list[AnyArray] | None:
    try:
        engine = interpreter.Interpreter(model_content=case.model(), experimental_op_resolver_type=resolver)
        engine.allocate_tensors()
        for detail, array in zip(engine.get_input_details(), arrays, strict=True):
            engine.set_tensor(detail["index"], array)
        engine.invoke()
    except (RuntimeError, ValueError):
        return None
    return [engine.get_tensor(detail["index"]) for detail in engine.get_output_details()]


def with_values(graph: TfliteGraph, arrays: list[AnyArray]) -> TfliteGraph:
    """Return a graph whose inputs are constants."""
    tensors = list(graph.tensors)
    for index, array in zip(graph.inputs, arrays, strict=True):
        tensors[index] = replace(tensors[index], folded=array)
    return replace(graph, tensors=tuple(tensors), inputs=())


@pytest.mark.parametrize("operator", [name for name in EVALUATED if name in GENERATORS])
def test_evaluator_agrees_with_litert(operator: str) -> None:
    compared = 0
    for case in cases(operator):
        if crash(case.name) or litert_error(case.name) or (expected := run_litert(case, case.arrays())) is None:
            continue
        graph = with_values(read(np.frombuffer(case.model(), np.uint8))[0], case.arrays())
        try:
            with np.errstate(all="ignore"):
                actual = EVALUATORS[graph.operators[0].code](GraphCall(graph, graph.operators[0]))
        except INFERENCE_ERRORS:
            continue  # the operator stays in the graph
        if actual is None:
            continue
        for value, reference in zip(actual, expected, strict=True):
            assert value.shape == reference.shape, case.name
            np.testing.assert_array_equal(value, reference, case.name)
        compared += 1
    assert compared


def test_float16_weights_become_constants() -> None:
    half = Tensor((2, 3), "FLOAT16", np.arange(6).reshape(2, 3))
    weights, x, y = Tensor((2, 3)), Tensor((1, 3)), Tensor((1, 2))
    bias = Tensor((2,), data=[1, 2])
    data = build(
        Op("DEQUANTIZE", [half], [weights]),
        Op("FULLY_CONNECTED", [x, weights, bias], [y], options("FullyConnected")),
    )
    model = tflite.parse(data)
    assert [operation_name(operation.type) for operation in model.main.operations] == ["FULLY_CONNECTED"]
    operand = model.main.operands[model.main.operations[0].inputs[1]]
    assert operand.lifetime in (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_POOL)


def test_unread_operators_are_removed() -> None:
    x, y, unread = Tensor((2,)), Tensor((2,)), Tensor((2,))
    folded = fold(read(np.frombuffer(build(Op("EXP", [x], [unread]), Op("TANH", [x], [y])), np.uint8))[0])
    assert [operator.name for operator in folded.unread] == ["EXP"]
    assert [operator.name for operator in folded.graph.operators] == ["TANH"]


def test_constant_output_keeps_its_operation() -> None:
    x, y = Tensor((2,)), Tensor((2,))
    data = build(
        Op("TANH", [x], [y]),
        Op("NEG", [Tensor((2,), data=[1, -2])], [constant := Tensor((2,))]),
        outputs=[y, constant],
    )
    assert [line.split()[0] for line in listing(tflite.parse(data))] == ["TANH", "NEG"]


def test_huge_results_are_not_folded() -> None:
    size = Tensor((1,), "INT32", [2**29])
    x, filled, y = Tensor((1,)), Tensor((2**29,)), Tensor((2**29,))
    value = Tensor((), data=1.0)
    data = build(Op("FILL", [size, value], [filled]), Op("ADD", [filled, x], [y], options("Add")))
    folded = fold(read(np.frombuffer(data, np.uint8))[0])
    assert [operator.name for operator in folded.graph.operators] == ["FILL", "ADD"]


def test_large_results_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of some bytes states a TILE of gigabytes: the device computes it, or refuses it."""
    x, one, large, y = Tensor((1,)), Tensor((1,), data=(1.0,)), Tensor((1,)), Tensor((1,))
    file = build(Op("TILE", [one, ints(2**30)], [large]), Op("ADD", [large, x], [y], options("Add")))
    monkeypatch.setitem(EVALUATORS, schema.BuiltinOperator.TILE, lambda _: pytest.fail("it is computed"))
    graph = fold(read(np.frombuffer(file, np.uint8))[0]).graph
    assert [operator.name for operator in graph.operators] == ["TILE", "ADD"]
    assert graph.tensors[graph.outputs[0]].shape == (2**30,)
