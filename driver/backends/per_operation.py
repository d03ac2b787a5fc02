"""Base of backends that run one operation at a time: they bring kernels, this brings shapes, order and the deadline."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from driver.backends.api import Backend, CompiledSubgraph, CompileOptions, OperationView, Output, Run, SubgraphView
from driver.operations import infer
from driver.operations.call import Call, Shape
from nnhal.types import DTYPES, AnyArray

Workload = Callable[[Call], AnyArray | Sequence[AnyArray]]
"""Runs one operation: gives the output, or all outputs, as new arrays or as views of inputs."""

W = TypeVar("W", bound=Workload)


class PerOperationBackend(Backend):
    """A backend with one workload for each operation."""

    @abstractmethod
    def workload(self, operation: OperationView) -> Workload:
        """Makes what runs one operation."""

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """A list of workloads, run in order."""
        return _Sequence(subgraph, [_Step(operation, self.workload(operation)) for operation in subgraph.operations])


class _Step:
    """One operation with its workload, and what was learnt about it."""

    def __init__(self, view: OperationView, workload: Workload) -> None:
        self._view = view
        self._workload = workload
        self._memo: dict[str, object] = {}
        self._inputs = view.operation.inputs
        self.outputs = view.operation.outputs
        self._declared = [view.graph.operands[o].dimensions for o in self.outputs]
        self._dtypes = [DTYPES[view.graph.operands[o].type] for o in self.outputs]
        self._known: dict[tuple[Shape | None, ...], list[Shape]] = {}

    def run(self, values: list[AnyArray | None], wanted: dict[int, Output]) -> None:
        call = Call(self._view, values, self._memo)
        shapes = self._shapes(call, values, wanted)
        made = self._workload(call)
        arrays = [made] if isinstance(made, np.ndarray) else made
        for position, array, shape, dtype in zip(self.outputs, arrays, shapes, self._dtypes, strict=True):
            assert array.shape == shape and array.dtype == dtype, (
                f"{self._view.name} made {array.dtype} {array.shape}, not {dtype} {shape}"
            )
            values[position] = array

    def _shapes(self, call: Call, values: list[AnyArray | None], wanted: dict[int, Output]) -> list[Shape]:
        """Shapes of the outputs; those that depend on shapes alone are worked out once for each set of shapes."""
        declared = [wanted[o].declared if o in wanted else d for o, d in zip(self.outputs, self._declared, strict=True)]
        key = tuple(None if (value := values[i]) is None else value.shape for i in self._inputs) + tuple(declared)
        if (known := self._known.get(key)) is not None:
            return known
        shapes = infer(call, declared)
        if not call.reads_values:
            if len(self._known) > 64:  # a client that never sends the same shape twice must not fill the memory
                self._known.clear()
            self._known[key] = shapes
        return shapes


class _Sequence(CompiledSubgraph):
    """Workloads in order."""

    def __init__(self, subgraph: SubgraphView, steps: list[_Step]) -> None:
        self._subgraph = subgraph
        self._steps = steps
        self._template: list[AnyArray | None] = [None] * len(subgraph.graph.operands)
        for index, constant in subgraph.graph.constants.items():
            self._template[index] = constant
        self._last_uses = _last_uses(subgraph)

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        values = self._template.copy()
        for position, array in zip(self._subgraph.inputs, inputs, strict=True):
            values[position] = array
        wanted = dict(zip(self._subgraph.outputs, outputs, strict=True))
        for step, dead in zip(self._steps, self._last_uses, strict=True):
            run.check()
            step.run(values, wanted)
            for position in dead:
                values[position] = None
        for position, output in wanted.items():
            array = values[position]
            assert array is not None
            output.write(array, keep=True)


def _last_uses(subgraph: SubgraphView) -> list[list[int]]:
    """For each operation the operands that nothing reads after it: their memory is let go at once."""
    kept = set(subgraph.outputs) | set(subgraph.graph.constants)
    last: dict[int, int] = {}
    for step, view in enumerate(subgraph.operations):
        for position in (*view.operation.inputs, *view.operation.outputs):
            last[position] = step
    dead: list[list[int]] = [[] for _ in subgraph.operations]
    for position, step in last.items():
        if position not in kept:
            dead[step].append(position)
    return dead
