"""One execution: runs the plan of a prepared model over a bound request and gives the result."""

import time

from driver.graph import Graph
from driver.memory import BoundRequest, OmittedOutput
from driver.operations import SHAPE_RULES
from driver.plan import Plan, Progress
from nnhal.errors import HalError
from nnhal.types import UNMEASURED, ExecutionResult, Timing


def execute(plan: Plan, bound: BoundRequest, progress: Progress, measure: bool, started_ns: int) -> ExecutionResult:
    """Runs a plan.

    Args:
        started_ns: time.perf_counter_ns() when the driver saw the call; only used when `measure` is set.

    Raises:
        HalError: the execution failed; what the outputs hold is undefined.
    """
    _check_omitted(plan.graph, bound)
    before = time.perf_counter_ns()
    plan.run(bound.inputs, bound.outputs, progress)
    device_ns = time.perf_counter_ns() - before
    shapes, sufficient = bound.shapes()
    if not sufficient:
        bound.withdraw()
        return ExecutionResult(False, shapes)
    bound.deliver()
    timing = Timing(device_ns, time.perf_counter_ns() - started_ns) if measure else UNMEASURED
    if progress.spans is None:
        return ExecutionResult(True, shapes, timing, bound.returned())
    return ExecutionResult(True, shapes, timing, bound.returned(), progress.spans.all(), progress.spans.dropped)


def _check_omitted(graph: Graph, bound: BoundRequest) -> None:
    """An output may only be omitted where its operation allows it (V-RUN-01).

    Raises:
        HalError: GENERAL_FAILURE, or what the operation's file says.
    """
    if OmittedOutput not in map(type, bound.outputs):
        return
    indexes = graph.subgraph.output_indexes
    omitted = {i for i, output in zip(indexes, bound.outputs, strict=True) if isinstance(output, OmittedOutput)}
    for view in graph.operations:
        optional = view.arguments.optional if view.arguments else frozenset()
        for name, position in view.positions.items():
            if position in omitted and position in view.operation.outputs and name not in optional:
                status = SHAPE_RULES[view.type].failure
                raise HalError(status, f"{view.name}: {name} has no value", rule="V-RUN-01")
