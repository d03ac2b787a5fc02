"""Measurement of performance: figures of slow, partial and accelerated backends."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.types import AnyArray, Capabilities, OperandType, OperationType, PerformanceInfo, is_tensor
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from nnhal_driver.backends.boundary.answers import FLT_MAX
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.performance.benchmark_models import BENCHMARK_MODELS, GROUP_OF_TYPE, benchmark_inputs
from nnhal_driver.performance.measurement import Figures, measure
from nnhal_driver.performance.operation_models import OPERATIONS
from nnhal_driver.performance.store import PerformanceStore
from nnhal_driver.validation.model import validate_model
from tests.driver.one_operation import device, execute, prepare
from tests.shared import shared

ACCELERATED = ("CpuAcc", "CpuRef")
CONVERTING = {
    OperationType.QUANTIZE,
    OperationType.DEQUANTIZE,
    OperationType.FULLY_CONNECTED,
    OperationType.RESHAPE,
    OperationType.TRANSPOSE,
    OperationType.EQUAL,
    OperationType.LESS,
}
"""Operations with tensors of several types."""


class Stopwatch:
    """Clock in seconds: each reading is 1 ms after the one before, and executions of `SlowBackend` take 2 ms more."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1e-3
        return self.seconds


class SlowBackend(CpuRef):
    """CpuRef that takes 2 ms more for each subgraph."""

    id = "Slow"

    def __init__(self, stopwatch: Stopwatch, stated: PerformanceInfo) -> None:
        super().__init__()
        self.stopwatch = stopwatch
        self.stated = stated

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return SlowSubgraph(super().compile(subgraph, options), self.stopwatch)

    def performance(self) -> PerformanceInfo:
        return self.stated


class SlowSubgraph(CompiledSubgraph):
    def __init__(self, compiled: CompiledSubgraph, stopwatch: Stopwatch, seconds: float = 2e-3) -> None:
        self.compiled = compiled
        self.stopwatch = stopwatch
        self.seconds = seconds

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self.stopwatch.seconds += self.seconds
        self.compiled.execute(inputs, outputs, run)


class Few(CpuRef):
    """CpuRef for some operations on tensors of some types."""

    id = "Few"

    def __init__(self, operations: Sequence[OperationType], types: Sequence[OperandType]) -> None:
        super().__init__()
        self.operations = operations
        self.types = types

    def supports(self, operation: OperationView) -> Support:
        operands = (operation.graph.operands[i] for i in (*operation.operation.inputs, *operation.operation.outputs))
        others = {operand.type for operand in operands if is_tensor(operand.type)} - set(self.types)
        return Support("few" if others or operation.type not in self.operations else "")


def figures(capabilities: Capabilities) -> dict[int, PerformanceInfo]:
    return {entry.type: entry.info for entry in capabilities.operand_performance}


@pytest.mark.parametrize("group", BENCHMARK_MODELS)
def test_benchmark_models_are_valid_and_run(group: str) -> None:
    for model in BENCHMARK_MODELS[group]():
        validate_model(model)
        _, outputs = execute(prepare(model), benchmark_inputs(model))
        assert all(np.isfinite(output.astype(np.float64)).all() for output in outputs)


def test_every_operand_type_has_a_group() -> None:
    assert set(GROUP_OF_TYPE) == set(OperandType) - {OperandType.SUBGRAPH}
    assert set(GROUP_OF_TYPE.values()) | {"relaxed", "if", "while"} == set(BENCHMARK_MODELS)


def test_reference_backend_has_figures_of_one() -> None:
    capabilities = device().get_capabilities()
    assert set(figures(capabilities).values()) == {PerformanceInfo(1.0, 1.0)}
    assert capabilities.if_performance == capabilities.while_performance == PerformanceInfo(1.0, 1.0)
    assert list(figures(capabilities)) == sorted(set(OperandType) - {OperandType.SUBGRAPH})


def test_slow_backend_has_high_figures_with_proportional_power(monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = Stopwatch()

    def measure_on_stopwatch(backends: Sequence[Backend]) -> Figures:
        return measure(backends, stopwatch)

    monkeypatch.setattr("nnhal_driver.performance.store.measure", measure_on_stopwatch)
    stated = PerformanceInfo(1.0, 3.0)
    capabilities = PerformanceStore().capabilities([SlowBackend(stopwatch, stated), CpuRef()], "1")
    assert {info.exec_time for info in figures(capabilities).values()} == {3.0}, "1 ms and 2 ms more"
    assert capabilities.if_performance.exec_time == 3.0
    assert capabilities.while_performance.exec_time > 3.0, "the body runs ten times"
    for info in (*figures(capabilities).values(), capabilities.if_performance, capabilities.while_performance):
        assert info.power_usage == pytest.approx(3 * info.exec_time, rel=0.01)


def test_stated_time_scales_time_and_power() -> None:
    stopwatch = Stopwatch()
    stated = PerformanceInfo(0.5, 0.25)
    measured = measure([SlowBackend(stopwatch, stated), CpuRef()], stopwatch)
    of_types = [info for group, info in measured.items() if group in set(GROUP_OF_TYPE.values())]
    assert of_types == [stated] * len(of_types), "all types are equally slow"
    assert measured["while"] is not None and measured["while"].exec_time > 0.5, "its body runs ten times"


def test_stated_time_keeps_the_proportions_of_types() -> None:
    class Doubling(SlowBackend):
        """Takes 2 ms more for each subgraph on 8 bits, and 8 ms for others."""

        def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
            slow = super().compile(subgraph, options)
            types = {subgraph.graph.operands[i].type for i in subgraph.inputs}
            return slow if types == {OperandType.TENSOR_QUANT8_ASYMM} else SlowSubgraph(slow, stopwatch, 6e-3)

        def supports(self, operation: OperationView) -> Support:
            return few.supports(operation)

    few = Few([OperationType.RELU], [OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_FLOAT16])
    stopwatch = Stopwatch()
    measured = measure([Doubling(stopwatch, PerformanceInfo(0.5, 1.0))], stopwatch)
    fast, slow = measured["quant8"], measured["float16"]
    assert fast is not None and slow is not None
    assert slow.exec_time / fast.exec_time == pytest.approx(3.0, rel=0.01), "9 ms and 3 ms"
    assert slow.exec_time * fast.exec_time == pytest.approx(0.25, rel=0.01)
    assert slow.power_usage / slow.exec_time == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("type_", list(OPERATIONS))
def test_type_is_measured_with_the_operations_that_a_backend_has(type_: OperandType) -> None:
    for operation in OPERATIONS[type_]:
        types = [*OperandType] if operation in CONVERTING else [type_]
        capabilities = PerformanceStore().capabilities([Few([operation], types)], "1")
        info = figures(capabilities)[type_]
        assert 0 < info.exec_time < FLT_MAX and 0 < info.power_usage < FLT_MAX
        assert capabilities.if_performance.exec_time < FLT_MAX


def test_backend_of_quantized_activations_has_figures() -> None:
    activations = [OperationType.RELU, OperationType.TANH, OperationType.LOGISTIC]
    capabilities = PerformanceStore().capabilities([Few(activations, [OperandType.TENSOR_QUANT8_ASYMM])], "1")
    assert list(figures(capabilities)) == [OperandType.TENSOR_QUANT8_ASYMM]
    assert capabilities.relaxed_float32_to_float16_performance_tensor == PerformanceInfo(FLT_MAX, FLT_MAX)
    assert capabilities.if_performance.exec_time < FLT_MAX
    assert capabilities.while_performance == PerformanceInfo(FLT_MAX, FLT_MAX), "it has no condition"


def test_unsupported_groups_are_omitted() -> None:
    capabilities = PerformanceStore().capabilities([Few([], [])], "1")
    assert figures(capabilities) == {}
    assert capabilities.relaxed_float32_to_float16_performance_tensor == PerformanceInfo(FLT_MAX, FLT_MAX)
    assert capabilities.if_performance == capabilities.while_performance == PerformanceInfo(FLT_MAX, FLT_MAX)


def test_accelerated_backend_is_measured() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    measured = measure(registry.create(ACCELERATED))
    assert all(info is not None and 0 < info.exec_time < FLT_MAX for info in measured.values())
    assert measured["quant16"] == PerformanceInfo(1.0, 1.0), "CpuRef runs it in both cases"
    assert len({info.exec_time for info in measured.values() if info}) > 2


def test_real_models_run_on_the_accelerated_backend_in_one_partition() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    import nnhal.tflite
    from nnhal_driver.compilation.placement import place
    from nnhal_driver.graph import build_graphs

    for name in ("kws_ref_model.tflite", "vww_96_float.tflite", "mobilenet_v2_1.0_224_quant.tflite"):
        placement = place(build_graphs(nnhal.tflite.load(shared(f"models/{name}"))), registry.create(ACCELERATED))
        assert [partition.backend for partition in placement.partitions] == ["CpuAcc"]
