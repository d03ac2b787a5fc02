"""Measurement of a device's performance: ratios to CpuRef, measured with small fixed models."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nnhal.types import DEFAULT_LOOP_TIMEOUT_NS, ExecutionPreference, Model, PerformanceInfo, Placement
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.backends.boundary.answers import performance
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.execution.control_flow import DRIVER_ID
from nnhal_driver.execution.plan import Plan, RunContext
from nnhal_driver.graph import Graph, build_graphs, drop_caches
from nnhal_driver.performance.benchmark_models import BENCHMARK_MODELS, GROUP_OF_TYPE, benchmark_inputs
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE

Figures = Mapping[str, PerformanceInfo | None]
"""Performance by group of `nnhal_driver.performance.benchmark_models`; None: no backend runs a model."""

_SMALLEST, _LARGEST = 1e-37, 3.4e38
"""Range of figures: float32 without subnormal numbers."""

Clock = Callable[[], float]
"""Monotonic clock in seconds."""

_MAX_ROUNDS, _MIN_ROUNDS = 12, 4
_MAX_SECONDS = 0.05
"""Time for the rounds of one model. Those of ten groups stay below a second together."""

_TYPE_GROUPS = set(GROUP_OF_TYPE.values())

_log = logging.getLogger(__name__)


def measure(backends: Sequence[Backend], clock: Clock = time.perf_counter) -> Figures:
    """Run the benchmark models on the backends and on CpuRef in turn.

    A group is measured with the first of its models that the backends run. The time figure is the ratio of the shortest
    runs. Power cannot be measured: its figure is that of the time, times the ratio of power to time that the backend
    states. If a backend states its time too, the figures of its groups are scaled, so that their geometric mean is the
    stated one: the models tell which types are fast, and the backend how fast it is with larger models.
    """
    measured = {group: _measure_group(group, make(), backends, clock) for group, make in BENCHMARK_MODELS.items()}
    levels = {backend.id: _level(backend, measured) for backend in backends}
    return {group: None if ratio is None else ratio.figures(levels) for group, ratio in measured.items()}


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Ratio of times to those of CpuRef in one group, and the backend that ran it; None for CpuRef alone."""

    exec_time: float
    backend: Backend | None

    def figures(self, levels: Mapping[str, PerformanceInfo]) -> PerformanceInfo:
        """Return the figures, given the factors of each backend by its id."""
        if self.backend is None:
            return PerformanceInfo(1.0, 1.0)
        level = levels[self.backend.id]
        return PerformanceInfo(_round(self.exec_time * level.exec_time), _round(self.exec_time * level.power_usage))


def _level(backend: Backend, measured: Mapping[str, _Ratio | None]) -> PerformanceInfo:
    """Return the factors that turn measured times into the figures of a backend."""
    stated = performance(backend)
    own = {group: ratio for group, ratio in measured.items() if ratio is not None and ratio.backend is backend}
    times = [ratio.exec_time for group, ratio in own.items() if group in _TYPE_GROUPS or not own.keys() & _TYPE_GROUPS]
    factor = 1.0
    if times and stated.exec_time != 1.0:
        factor = stated.exec_time / math.exp(sum(map(math.log, times)) / len(times))
    return PerformanceInfo(factor, factor / stated.exec_time * stated.power_usage)


def _measure_group(group: str, models: Iterable[Model], backends: Sequence[Backend], clock: Clock) -> _Ratio | None:
    reason: Exception | None = None
    for model in models:
        try:
            return _measure_model(model, backends, clock)
        except Exception as error:
            reason = reason or error  # that of the typical model
    _log.info("no performance figure for %s: %s", group, reason)
    return None


def _measure_model(model: Model, backends: Sequence[Backend], clock: Clock) -> _Ratio:
    """Measure one model. Any exception means that the backends do not run it."""
    graphs = build_graphs(model)
    try:
        placement, plan = _prepare(graphs, backends, model)
        names = {partition.backend for partition in placement.partitions} - {DRIVER_ID}
        if names <= {CpuRef.id}:
            return _Ratio(1.0, None)
        _, reference = _prepare(graphs, [CpuRef()], model)
        ratio = _time_ratio(lambda: _run(plan, model), lambda: _run(reference, model), clock)
        return _Ratio(ratio, next(backend for backend in backends if backend.id in names))
    finally:
        drop_caches(graphs)


def _prepare(graphs: Sequence[Graph], backends: Sequence[Backend], model: Model) -> tuple[Placement, Plan]:
    options = CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER)
    relaxed = model.relax_computation_float32_to_float16
    return place_and_compile(graphs, backends, options, relaxed=relaxed)


def _run(plan: Plan, model: Model) -> None:
    plan.call(benchmark_inputs(model), RunContext(NO_DEADLINE, Cancellation(), DEFAULT_LOOP_TIMEOUT_NS))


def _time_ratio(subject: Callable[[], None], reference: Callable[[], None], clock: Clock) -> float:
    """Return the ratio of the shortest times. Runs alternate, so that other work on the machine affects both."""
    for run in (subject, reference):
        run()  # warm-up
    shortest = [math.inf, math.inf]
    start = clock()
    for number in range(_MAX_ROUNDS):
        for i, run in enumerate((subject, reference)):
            before = clock()
            run()
            shortest[i] = min(shortest[i], clock() - before)
        if number >= _MIN_ROUNDS and clock() - start > _MAX_SECONDS:
            break
    return shortest[0] / shortest[1]


def _round(figure: float) -> float:
    """Return a figure with three significant digits, which is more than the precision of the measurement.

    It is within the range of the HAL's type, which the figures that a backend states may leave.
    """
    return float(f"{min(max(figure, _SMALLEST), _LARGEST):.3g}")
