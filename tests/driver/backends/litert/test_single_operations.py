"""Profiled executions of CpuAcc: the operations run one by one, and give the same bits."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from nnhal.errors import HalError
from nnhal.tflite import load, parse
from nnhal.types import AnyArray, ExecutionResult, Model, Span, SpanKind, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import CompileOptions, SubgraphView
from nnhal_driver.backends.litert import subgraph
from nnhal_driver.backends.litert.backend import CpuAcc
from nnhal_driver.backends.litert.engine import SubgraphInterpreter
from nnhal_driver.backends.litert.subgraph import SET_UP
from nnhal_driver.device import Device
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.backends.litert.support.comparison import device
from tests.driver.backends.litert.support.models import one_operation
from tests.driver.backends.litert.support.random_graphs import Sample, graphs
from tests.driver.backends.litert.support.samples import Case
from tests.driver.fake_backend import SMALL, graph_of
from tests.driver.one_operation import execute, execute_profiled, int32, int_tensor, prepare, tensor
from tests.nnhal.tflite.build import Op as OpOfFile
from tests.nnhal.tflite.build import Tensor, build, ints, options
from tests.shared import shared

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

CHAIN = graph_of([(-1, -1), (0, 0), (1, 0)], [Op.ADD, Op.MUL, Op.MAXIMUM])
X = np.ones(SMALL, np.float32)
OUT = tensor(T.TENSOR_FLOAT32)


def prepare_chain(model: Model = CHAIN) -> Outcome:
    return prepare(model, Device("test", registry.create(["CpuAcc", "CpuRef"])))


def spans_of(result: ExecutionResult, *kinds: SpanKind) -> list[Span]:
    return [span for span in result.spans if span.kind in kinds]


def test_each_operation_has_a_span_in_its_partition() -> None:
    outcome = prepare_chain()
    first, second = (execute_profiled(outcome, [X]) for _ in range(2))
    assert [span.name for span in spans_of(first, SpanKind.WORK)] == [SET_UP]
    assert spans_of(second, SpanKind.WORK) == []
    for result in (first, second):
        operations = spans_of(result, SpanKind.OPERATION)
        assert [(span.name, span.backend, span.operations) for span in operations] == [
            ("ADD", "CpuAcc", (0,)),
            ("MUL", "CpuAcc", (1,)),
            ("MAXIMUM", "CpuAcc", (2,)),
        ]
        (partition,) = spans_of(result, SpanKind.PARTITION)
        ends = [partition.start_ns, *(span.start_ns + span.duration_ns for span in operations)]
        assert all(end <= span.start_ns for end, span in zip(ends, operations, strict=False)), "one after the other"
        assert ends[-1] <= partition.start_ns + partition.duration_ns


def test_spans_name_regions_of_the_extension() -> None:
    x, sums, output = Tensor((4,)), Tensor((4,)), Tensor((4,))
    file = build(OpOfFile("CUMSUM", [x, ints(0)], [sums], options("Cumsum")), OpOfFile("NEG", [sums], [output]))
    result = execute_profiled(prepare_chain(parse(file)), [np.ones(4, np.float32)])
    names = [span.name for span in spans_of(result, SpanKind.OPERATION)]
    assert names == ["SUBMODEL of org.nnhal.litert", "NEG"]


def test_ordinary_execution_sets_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subgraph, "SingleOperations", lambda *_: pytest.fail("set up"))
    assert execute(prepare_chain(), [X])[1][0].tolist() == (4 * X).tolist()


@pytest.mark.parametrize("name", ["kws_ref_model", "mobilenet_v2_1.0_224_quant", "trained_lstm", "vww_96_float"])
def test_real_models_give_the_same_bits(name: str) -> None:
    outcome = prepare_chain(load(str(shared(f"models/{name}.tflite"))))
    assert outcome.prepared_model is not None, outcome.reason
    (operand,) = outcome.prepared_model.inputs
    random = np.random.default_rng(5)
    if operand.type == T.TENSOR_FLOAT32:
        x: AnyArray = random.standard_normal(operand.dimensions).astype(np.float32)
    else:
        dtype = np.int8 if operand.type == T.TENSOR_QUANT8_ASYMM_SIGNED else np.uint8
        x = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, operand.dimensions, dtype, endpoint=True)
    ordinary, _ = execute(outcome, [x])
    for _ in range(2):  # variables of operators start from zero each time
        profiled = execute_profiled(outcome, [x])
        assert len(spans_of(profiled, SpanKind.OPERATION)) == len(outcome.prepared_model.placement.operations)
        for actual, expected in zip(profiled.returned, ordinary.returned, strict=True):
            np.testing.assert_array_equal(actual, expected)


def requantizes(graph: Subgraph) -> bool:
    """Return whether a QUANTIZE reads a DEQUANTIZE: XNNPACK makes one conversion of them, with a coarse multiplier."""
    dequantized = {op.outputs[0] for op in graph.operations if op.type == Op.DEQUANTIZE}
    return any(op.type == Op.QUANTIZE and op.inputs[0] in dequantized for op in graph.operations)


@settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(sample=graphs())
def test_random_graphs_give_the_same_bits(sample: Sample) -> None:
    assume(not requantizes(sample.model.main))
    outcome = prepare(sample.model, device("CpuAcc", "CpuRef"))
    results: list[object] = []
    for profiled in (False, True):
        try:
            result = execute_profiled(outcome, sample.inputs) if profiled else execute(outcome, sample.inputs)[0]
            results.append([None if data is None else data.tobytes() for data in result.returned])
        except HalError as error:
            results.append(str(error))
    assert results[0] == results[1]


def test_other_shapes_are_set_up_again() -> None:
    unknown = one_operation(Case(Op.RELU, [(tensor(T.TENSOR_FLOAT32, (0, 2)), np.zeros((1, 2)))], [OUT]))[0]
    outcome = prepare_chain(unknown)
    set_ups = []
    for rows in (1, 1, 3, 3):
        result = execute_profiled(outcome, [np.full((rows, 2), -1, np.float32)])
        set_ups.append(len(spans_of(result, SpanKind.WORK)))
        assert result.output_shapes[0].dimensions == (rows, 2)
    assert set_ups == [1, 0, 1, 0]


def test_model_from_the_cache_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ = CpuAcc.compile

    def compile_from_sections(self: CpuAcc, view: SubgraphView, options: CompileOptions) -> object:
        sections = compile_(self, view, options).save()
        assert sections is not None
        return self.load(view, sections, options)

    monkeypatch.setattr(CpuAcc, "compile", compile_from_sections)
    result = execute_profiled(prepare_chain(), [X])
    assert [span.name for span in spans_of(result, SpanKind.OPERATION)] == ["ADD", "MUL", "MAXIMUM"]


def test_engine_that_cannot_run_single_operations_runs_the_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: SubgraphInterpreter, model: bytes | str, threads: int) -> None:
        raise RuntimeError("no such function")

    monkeypatch.setattr(SubgraphInterpreter, "__init__", fail)
    outcome = prepare_chain()
    with caplog.at_level("INFO"):
        result = execute_profiled(outcome, [X])
    assert "the operations of main are not measured: no such function" in caplog.text
    assert [span.kind for span in result.spans if span.kind != SpanKind.STAGE] == [SpanKind.PARTITION]
    (data,) = result.returned
    assert data is not None
    np.testing.assert_array_equal(data, execute(outcome, [X])[0].returned[0])


def test_errors_equal_those_of_an_ordinary_execution() -> None:
    x = tensor(T.TENSOR_FLOAT32, (2, 2)), [[1, 2], [3, 4]]
    gather = prepare_chain(one_operation(Case(Op.GATHER, [x, int32(0), int_tensor([0, 1])], [OUT]))[0])
    arrays = [np.array([[1, 2], [3, 4]], np.float32), np.array([0, 2], np.int32)]
    errors = []
    for run in (execute, execute_profiled):
        with pytest.raises(HalError) as error:
            run(gather, arrays)
        errors.append(str(error.value))
    assert errors[0] == errors[1] and "indices lie in 0..2" in errors[0]
