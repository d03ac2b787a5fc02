"""IF and WHILE: nodes of a plan, run by the driver itself so that no backend needs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from driver.deadline import now_ns
from driver.graph import OperationView
from driver.placement import DRIVER
from driver.plan import Frame, Node, Plan, Progress
from nnhal.errors import general_failure, missed_deadline
from nnhal.types import AnyArray, OperationType, is_tensor


@dataclass(frozen=True, eq=False)
class If:
    """One IF: the condition chooses between two plans."""

    view: OperationView
    then: Plan
    otherwise: Plan
    backend: ClassVar[str] = DRIVER

    @property
    def indexes(self) -> tuple[int, ...]:
        """The one operation."""
        return (self.view.index,)

    def run(self, frame: Frame, progress: Progress) -> None:
        """Runs the branch that the condition chooses; the other is not touched."""
        condition, _, _, *rest = self.view.operation.inputs
        value = frame.value(condition)
        if value is None:
            raise general_failure(f"{self.view.name}: the condition has no value", "V-RUN-01")
        branch = self.then if value.any() else self.otherwise
        _deliver(self.view, frame, branch.call([frame.value(i) for i in rest], progress))


@dataclass(frozen=True, eq=False)
class While:
    """One WHILE: the body runs as long as the condition holds."""

    view: OperationView
    condition: Plan
    body: Plan
    backend: ClassVar[str] = DRIVER

    @property
    def indexes(self) -> tuple[int, ...]:
        """The one operation."""
        return (self.view.index,)

    def run(self, frame: Frame, progress: Progress) -> None:
        """Runs condition and body in turn; the first values of the last turn are the outputs.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: the loop timeout is over. It is looked at after each condition that
                holds, so a loop that ends in time is never aborted.
        """
        values = [frame.value(i) for i in self.view.operation.inputs[2:]]
        started = now_ns()
        while self.condition.call(values, progress)[0].any():
            if now_ns() - started > progress.loop_timeout_ns:
                raise missed_deadline(
                    f"{self.view.name}: the loop timeout of {progress.loop_timeout_ns / 1e6:g} ms is over"
                )
            updated = self.body.call(values, progress)
            values[: len(updated)] = updated
        _deliver(self.view, frame, values[: len(self.view.operation.outputs)])


_NODES: Mapping[int, Callable[..., Node]] = {OperationType.IF: If, OperationType.WHILE: While}


def control_flow_node(view: OperationView, plans: Mapping[int, Plan]) -> Node:
    """The node of an IF or WHILE. `plans`: of the subgraphs that it runs, by their number."""
    return _NODES[view.type](view, *(plans[callee] for callee in view.callees))


def _deliver(view: OperationView, frame: Frame, arrays: Sequence[AnyArray | None]) -> None:
    for position, array in zip(view.operation.outputs, arrays, strict=True):
        if array is None:
            raise general_failure(f"{view.name}: an output has no value", "V-RUN-01")
        output = frame.output(position, read_again=True)
        declared = output.declared
        fits = len(declared) == array.ndim and all(d in (0, n) for d, n in zip(declared, array.shape, strict=True))
        if declared and not fits and is_tensor(frame.graph.operands[position].type):
            raise general_failure(
                f"{view.name}: an output has shape {list(array.shape)}, declared {list(declared)}", "V-RUN-04"
            )
        output.write(array, keep=True)
        frame.keep(position, output)
