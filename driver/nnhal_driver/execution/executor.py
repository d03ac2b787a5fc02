"""Execution of a plan over a bound request."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from nnhal.errors import HalError
from nnhal.types import UNMEASURED, ExecutionResult, Timing
from nnhal_driver.execution.plan import Plan, RunContext
from nnhal_driver.execution.request_binding import BoundRequest, OmittedOutput
from nnhal_driver.graph import Graph
from nnhal_driver.operations import SHAPE_RULES

_log = logging.getLogger(__name__)


def execute_plan(
    plan: Plan,
    bound: BoundRequest,
    context: RunContext,
    started_ns: int | None,
    release_slot: Callable[[], None],
) -> ExecutionResult:
    """Run a plan of the main subgraph and return its result.

    `started_ns`: time.perf_counter_ns() of the call, to measure timing; None: do not measure it. `release_slot` is
    called when only work remains that backends have started elsewhere (`Run.defer`), before the wait for it. It may be
    called again.

    Raises:
        HalError: the execution failed. The contents of the outputs are undefined.
    """
    _check_omitted(plan.graph, bound)
    before = time.perf_counter_ns()
    try:
        plan.run(bound.inputs, bound.outputs, context)
    except BaseException:
        try:
            context.finish()  # work that was started may use its memory until then
        except Exception as error:
            _log.debug("work of a failed execution failed too: %s", error)
        raise
    if context.deferred:
        release_slot()
        context.finish()
    device_ns = time.perf_counter_ns() - before
    result = deliver(bound, device_ns, started_ns)
    if context.spans is None or not result.output_sufficient_size:
        return result
    context.spans.end()
    return replace(result, spans=context.spans.all(), dropped_spans=context.spans.dropped)


def deliver(bound: BoundRequest, device_ns: int, started_ns: int | None) -> ExecutionResult:
    """Return the result of an execution whose outputs are written, and store those in buffers.

    Raises:
        HalError: RESOURCE_EXHAUSTED_*: there is no memory for the value of a buffer.
    """
    shapes, sufficient = bound.shapes()
    if not sufficient:
        bound.discard()
        return ExecutionResult(False, shapes)
    bound.commit()
    timing = Timing(device_ns, time.perf_counter_ns() - started_ns) if started_ns is not None else UNMEASURED
    return ExecutionResult(True, shapes, timing, bound.returned_data())


def _check_omitted(graph: Graph, bound: BoundRequest) -> None:
    """Raise if an output is omitted whose operation requires it (V-RUN-01)."""
    if OmittedOutput not in map(type, bound.outputs):
        return
    indexes = graph.subgraph.output_indexes
    omitted = {i for i, output in zip(indexes, bound.outputs, strict=True) if isinstance(output, OmittedOutput)}
    for view in graph.operations:
        if view.arguments is None:  # the backend of an extension decides
            continue
        for name, position in view.positions.items():
            if position in omitted and position in view.operation.outputs and name not in view.arguments.optional:
                status = SHAPE_RULES[view.type].failure
                raise HalError(status, f"{view.name}: {name} has no value", rule="V-RUN-01")
