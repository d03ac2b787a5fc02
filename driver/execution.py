"""One execution: runs the plan of a prepared model over a bound request and gives the result."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from driver.backends.api import CompiledSubgraph, Output, SubgraphView
from driver.cancellation import Cancellation
from driver.deadline import Deadline
from driver.graph import Graph
from driver.memory import BoundRequest, OmittedOutput
from nnhal.errors import general_failure
from nnhal.types import AnyArray, ExecutionResult, Timing


@dataclass(frozen=True, eq=False)
class Step:
    """A partition, compiled."""

    view: SubgraphView
    compiled: CompiledSubgraph


@dataclass(frozen=True, eq=False)
class Plan:
    """What preparation made of the main subgraph: its partitions, in order."""

    graph: Graph
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What ends an execution early; the `Run` that backends see."""

    deadline: Deadline
    cancellation: Cancellation

    def check(self) -> None:
        """Between operations and partitions (V-RUN-08).

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT or, when cancelled, GENERAL_FAILURE.
        """
        self.deadline.check("the execution")
        self.cancellation.check()


class _Temporary:
    """A value that goes from one partition to another."""

    def __init__(self, declared: tuple[int, ...]) -> None:
        self.declared = declared
        self.value: AnyArray | None = None

    def write(self, array: AnyArray, *, keep: bool = False) -> None:
        self.value = array if keep else array.copy()


def execute(plan: Plan, bound: BoundRequest, progress: Progress, measure: bool, started_ns: int) -> ExecutionResult:
    """Runs every partition in order.

    Args:
        started_ns: time.perf_counter_ns() when the driver saw the call; only used when `measure` is set.

    Raises:
        HalError: the execution failed; the content of the outputs is undefined.
    """
    _check_omitted(plan, bound)
    subgraph = plan.graph.subgraph
    values: dict[int, AnyArray | None] = dict(zip(subgraph.input_indexes, bound.inputs, strict=True))
    results: dict[int, Output] = dict(zip(subgraph.output_indexes, bound.outputs, strict=True))
    device_ns = 0
    for step in plan.steps:
        progress.check()
        before = time.perf_counter_ns()
        _run(step, values, results, progress)
        device_ns += time.perf_counter_ns() - before
    sufficient = all(output.shape.is_sufficient for output in bound.outputs)
    shapes = tuple(output.shape for output in bound.outputs)
    if not sufficient:
        return ExecutionResult(False, shapes)
    timing = Timing(device_ns, time.perf_counter_ns() - started_ns) if measure else Timing()
    return ExecutionResult(True, shapes, timing, bound.returned())


def _run(step: Step, values: dict[int, AnyArray | None], results: dict[int, Output], progress: Progress) -> None:
    operands = step.view.graph.operands
    temporaries = {i: _Temporary(operands[i].dimensions) for i in step.view.outputs if i not in results}
    outputs = [results.get(i) or temporaries[i] for i in step.view.outputs]
    step.compiled.execute([values[i] for i in step.view.inputs], outputs, progress)
    values |= {i: temporary.value for i, temporary in temporaries.items()}


def _check_omitted(plan: Plan, bound: BoundRequest) -> None:
    """An output may only be omitted where its operation allows it (V-RUN-01).

    Raises:
        HalError: GENERAL_FAILURE.
    """
    indexes = plan.graph.subgraph.output_indexes
    omitted = {i for i, output in zip(indexes, bound.outputs, strict=True) if isinstance(output, OmittedOutput)}
    if not omitted:
        return
    for view in plan.graph.operations:
        optional: Sequence[str] | frozenset[str] = view.arguments.optional if view.arguments else ()
        for name, position in view.positions.items():
            if position in omitted and position in view.operation.outputs and name not in optional:
                raise general_failure(f"{view.name}: {name} has no value", "V-RUN-01")
