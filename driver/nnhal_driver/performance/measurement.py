"""Measurement of a device's performance: ratios to CpuRef, measured with small fixed models."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from nnhal.types import DEFAULT_LOOP_TIMEOUT_NS, ExecutionPreference, Model, PerformanceInfo, Placement
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.backends.boundary.answers import performance
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.execution.control_flow import DRIVER_ID
from nnhal_driver.execution.plan import Plan, RunContext
from nnhal_driver.graph import Graph, build_graphs, drop_caches
from nnhal_driver.performance.benchmark_models import BENCHMARK_MODELS, benchmark_inputs
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE

Figures = Mapping[str, PerformanceInfo | None]
"""Performance by group of `nnhal_driver.performance.benchmark_models`; None: no backend runs the model."""

_SMALLEST, _LARGEST = 1e-37, 3.4e38
"""Range of figures: float32 without subnormal numbers."""

Clock = Callable[[], float]
"""Monotonic clock in seconds."""

_MAX_ROUNDS, _MIN_ROUNDS = 12, 4
_MAX_SECONDS = 0.05
"""Time for the rounds of one model. Ten models stay below a second together."""

_log = logging.getLogger(__name__)


def measure(backends: Sequence[Backend], clock: Clock = time.perf_counter) -> Figures:
    """Run every benchmark model on the backends and on CpuRef in turn.

    The time figure is the ratio of the shortest runs. Power cannot be measured. Its figure is the same ratio, times the
    ratio of power to time that the backend states.
    """
    return {group: _measure_group(group, make(), backends, clock) for group, make in BENCHMARK_MODELS.items()}


def _measure_group(group: str, model: Model, backends: Sequence[Backend], clock: Clock) -> PerformanceInfo | None:
    graphs = build_graphs(model)
    try:
        placement, plan = _prepare(graphs, backends, model)
        users = _used_backends(placement, backends)
        if {backend.id for backend in users} <= {CpuRef.id}:
            return PerformanceInfo(1.0, 1.0)
        _, reference = _prepare(graphs, [CpuRef()], model)
        ratio = _time_ratio(lambda: _run(plan, model), lambda: _run(reference, model), clock)
    except Exception as error:
        _log.info("no performance figure for %s: %s", group, error)
        return None
    finally:
        drop_caches(graphs)
    stated = performance(users[0])
    return PerformanceInfo(_round(ratio), _round(ratio / stated.exec_time * stated.power_usage))


def _prepare(graphs: Sequence[Graph], backends: Sequence[Backend], model: Model) -> tuple[Placement, Plan]:
    options = CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER)
    relaxed = model.relax_computation_float32_to_float16
    return place_and_compile(graphs, backends, options, relaxed=relaxed, check=lambda: None)


def _used_backends(placement: Placement, backends: Sequence[Backend]) -> list[Backend]:
    """Return the backends that run a partition, in the device's order."""
    names = {partition.backend for partition in placement.partitions} - {DRIVER_ID}
    return [backend for backend in backends if backend.id in names]


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
