"""IF and WHILE: nodes of a plan that the driver runs itself, so that no backend needs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from nnhal.errors import general_failure, missed_deadline
from nnhal.types import AnyArray, OperationType, is_tensor
from nnhal_driver.execution.plan import Node, Plan, RunContext, SubgraphValues
from nnhal_driver.graph import OperationView
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_driver.scheduling.paced_check import PacedCheck, proceed

DRIVER_ID = "driver"
"""Id that stands in for a backend's id for IF and WHILE."""


@dataclass(frozen=True, eq=False)
class _ControlFlow:
    """An operation of control flow."""

    view: OperationView
    backend: ClassVar[str] = DRIVER_ID

    @property
    def indexes(self) -> tuple[int, ...]:
        """The index of the operation."""
        return (self.view.index,)


@dataclass(frozen=True, eq=False)
class If(_ControlFlow):
    """IF: the condition chooses one of two plans."""

    then: Plan
    otherwise: Plan

    def run(self, values: SubgraphValues, context: RunContext) -> None:
        """Run the branch that the condition chooses."""
        condition, _, _, *inputs = self.view.operation.inputs
        value = values.value(condition)
        if value is None:
            raise general_failure(f"{self.view.name}: the condition has no value", "V-RUN-01")
        branch = self.then if value.any() else self.otherwise
        _write_outputs(self.view, values, branch.call([values.value(i) for i in inputs], context))


@dataclass(frozen=True, eq=False)
class While(_ControlFlow):
    """WHILE: the body runs as long as the condition holds."""

    condition: Plan
    body: Plan

    def run(self, values: SubgraphValues, context: RunContext) -> None:
        """Run condition and body in turn. The first loop variables are the outputs.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: the loop timed out. The timeout is checked after each condition that
                holds, so a loop that ends in time is never aborted.
        """
        variables = [values.value(i) for i in self.view.operation.inputs[2:]]
        started, pause = now_ns(), PacedCheck(proceed)
        while self.condition.call(variables, context)[0].any():
            pause()
            if now_ns() - started > context.loop_timeout_ns:
                raise missed_deadline(
                    f"{self.view.name}: the loop timeout of {context.loop_timeout_ns / 1e6:g} ms has passed"
                )
            updated = self.body.call(variables, context)
            variables[: len(updated)] = updated
        _write_outputs(self.view, values, variables[: len(self.view.operation.outputs)])


_NODES: Mapping[int, Callable[..., Node]] = {OperationType.IF: If, OperationType.WHILE: While}


def control_flow_node(view: OperationView, plans: Mapping[int, Plan]) -> Node:
    """Return the node of an IF or WHILE. `plans`: those of the subgraphs that it runs, by number."""
    return _NODES[view.type](view, *(plans[callee] for callee in view.callees))


def _write_outputs(view: OperationView, values: SubgraphValues, arrays: Sequence[AnyArray | None]) -> None:
    for position, array in zip(view.operation.outputs, arrays, strict=True):
        if array is None:
            raise general_failure(f"{view.name}: an output has no value", "V-RUN-01")
        output = values.output(position, used_later=True)
        declared = output.declared
        fits = len(declared) == array.ndim and all(d in (0, n) for d, n in zip(declared, array.shape, strict=True))
        if declared and not fits and is_tensor(values.graph.operands[position].type):
            raise general_failure(
                f"{view.name}: an output has shape {list(array.shape)}; expected {list(declared)}", "V-RUN-04"
            )
        output.write(array, keep=True)
        values.store(position, output)
