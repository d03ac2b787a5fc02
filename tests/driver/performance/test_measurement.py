"""Measurement of performance: figures of slow, partial and accelerated backends."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.types import AnyArray, Capabilities, OperandType, OperationType, PerformanceInfo
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
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.performance.benchmark_models import BENCHMARK_MODELS, GROUP_OF_TYPE, benchmark_inputs
from nnhal_driver.performance.figures_file import FLT_MAX
from nnhal_driver.performance.measurement import Figures, measure
from nnhal_driver.performance.store import PerformanceStore
from nnhal_driver.validation.model import validate_model
from tests.driver.one_operation import device, execute, prepare
from tests.shared import shared

ACCELERATED = ("CpuAcc", "CpuRef")


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

    def __init__(self, stopwatch: Stopwatch, power: float) -> None:
        super().__init__()
        self.stopwatch = stopwatch
        self.power = power

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return SlowSubgraph(super().compile(subgraph, options), self.stopwatch)

    def performance(self) -> PerformanceInfo:
        return PerformanceInfo(2.0, 2.0 * self.power)


class SlowSubgraph(CompiledSubgraph):
    def __init__(self, compiled: CompiledSubgraph, stopwatch: Stopwatch) -> None:
        self.compiled = compiled
        self.stopwatch = stopwatch

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        self.stopwatch.seconds += 2e-3
        self.compiled.execute(inputs, outputs, run)


class OnlyAdd(CpuRef):
    id = "OnlyAdd"

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.type == OperationType.ADD else Support("only ADD")


def figures(capabilities: Capabilities) -> dict[int, PerformanceInfo]:
    return {entry.type: entry.info for entry in capabilities.operand_performance}


@pytest.mark.parametrize("group", BENCHMARK_MODELS)
def test_benchmark_models_are_valid_and_run(group: str) -> None:
    model = BENCHMARK_MODELS[group]()
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
    capabilities = PerformanceStore().capabilities([SlowBackend(stopwatch, power=3.0), CpuRef()], "1")
    assert {info.exec_time for info in figures(capabilities).values()} == {3.0}, "1 ms and 2 ms more"
    assert capabilities.if_performance.exec_time == 3.0
    assert capabilities.while_performance.exec_time > 3.0, "the body runs ten times"
    for info in (*figures(capabilities).values(), capabilities.if_performance, capabilities.while_performance):
        assert info.power_usage == pytest.approx(3 * info.exec_time, rel=0.01)


def test_unsupported_groups_are_omitted() -> None:
    """OnlyAdd supports the sums in IF and WHILE, and apart from IF no whole model of another group."""
    capabilities = PerformanceStore().capabilities([OnlyAdd()], "1")
    assert figures(capabilities) == {}
    assert capabilities.relaxed_float32_to_float16_performance_tensor == PerformanceInfo(FLT_MAX, FLT_MAX)
    assert capabilities.while_performance == PerformanceInfo(FLT_MAX, FLT_MAX)
    assert capabilities.if_performance.exec_time < FLT_MAX


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
