"""Base of backends that run one operation at a time: they bring kernels, this brings shapes, order and the deadline."""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from driver.backends.api import Backend, CompiledSubgraph, CompileOptions, OperationView, Output, Run, SubgraphView
from driver.operations import infer
from driver.operations.call import Call, Shape
from nnhal.types import DTYPES, AnyArray, operation_name

Workload = Callable[[Call], AnyArray | Sequence[AnyArray]]
"""Runs one operation: gives the output, or all outputs, as new arrays or as views of inputs.

It may raise an ArithmeticError where scales leave the numbers that it computes with: the execution fails.
"""

W = TypeVar("W", bound=Workload)


class PerOperationBackend(Backend):
    """A backend with one workload for each operation."""

    @abstractmethod
    def workload(self, operation: OperationView) -> Workload:
        """Makes what runs one operation."""

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """A list of workloads, run in order."""
        steps = [_Step(one, self.workload(one), options.tensor_bytes) for one in subgraph.operations]
        return _Sequence(subgraph, steps)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a shape rule gave, and what it left for the kernel."""

    shapes: Sequence[Shape]
    findings: Mapping[str, object]


class _Step:
    """One operation with its workload, and what was learnt about it."""

    def __init__(self, view: OperationView, workload: Workload, tensor_bytes: int) -> None:
        self.view = view
        self._workload = workload
        self._tensor_bytes = tensor_bytes
        self._memo: dict[str, object] = {}
        self._varying = [i for i in view.operation.inputs if i not in view.graph.constants]
        self.outputs = view.operation.outputs
        self._declared = [view.graph.operands[o].dimensions for o in self.outputs]
        self._dtypes = [DTYPES[view.graph.operands[o].type] for o in self.outputs]
        self._known: dict[tuple[Shape | None, ...], _Known] = {}

    def run(self, values: dict[int, AnyArray | None], wanted: dict[int, Output]) -> None:
        call, shapes = self._inferred(values, wanted)
        try:
            made = self._workload(call)
        except ArithmeticError as error:
            raise call.failure(str(error)) from None
        arrays = [made] if isinstance(made, np.ndarray) else made
        for position, array, shape, dtype in zip(self.outputs, arrays, shapes, self._dtypes, strict=True):
            assert array.shape == shape and array.dtype == dtype, (
                f"{self.view.name} made {array.dtype} {array.shape}, not {dtype} {shape}"
            )
            values[position] = array

    def _inferred(self, values: dict[int, AnyArray | None], wanted: dict[int, Output]) -> tuple[Call, Sequence[Shape]]:
        """The run, and shapes of the outputs; what depends on shapes alone is worked out once for each set of them."""
        declared = [wanted[o].declared if o in wanted else d for o, d in zip(self.outputs, self._declared, strict=True)]
        key = (*[None if (value := values[i]) is None else value.shape for i in self._varying], *declared)
        if (known := self._known.get(key)) is not None:
            return Call(self.view, values, self._memo, known.findings), known.shapes
        call = Call(self.view, values, self._memo)
        shapes = infer(call, declared, self._tensor_bytes)
        if not call.reads_values:
            if len(self._known) > 64:  # a client that never sends the same shape twice must not fill the memory
                self._known.clear()
            self._known[key] = _Known(shapes, dict(call.findings))
        return call, shapes


class _Sequence(CompiledSubgraph):
    """Workloads in order."""

    def __init__(self, subgraph: SubgraphView, steps: list[_Step]) -> None:
        self._subgraph = subgraph
        self._steps = steps
        # only what this partition names: a graph may have as many partitions as operands
        constants = subgraph.graph.constants
        operands = (o for one in subgraph.operations for o in (*one.operation.inputs, *one.operation.outputs))
        self._template = {operand: constants.get(operand) for operand in operands}
        self._last_uses = _last_uses(subgraph)

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        values = self._template.copy()
        for position, array in zip(self._subgraph.inputs, inputs, strict=True):
            values[position] = array
        wanted = dict(zip(self._subgraph.outputs, outputs, strict=True))
        profile = run.profile
        for step, dead in zip(self._steps, self._last_uses, strict=True):
            run.check()
            if profile is None:
                step.run(values, wanted)
            else:
                began = time.perf_counter_ns()
                step.run(values, wanted)
                took = time.perf_counter_ns() - began
                profile.span(operation_name(step.view.type), began, took, step.view)
            for position in dead:
                values[position] = None
        for position, output in wanted.items():
            array = values[position]
            assert array is not None
            output.write(array, keep=True)


def _last_uses(subgraph: SubgraphView) -> list[list[int]]:
    """For each operation the operands that nothing reads after it: their memory is let go at once."""
    kept, constants = set(subgraph.outputs), subgraph.graph.constants
    last: dict[int, int] = {}
    for step, view in enumerate(subgraph.operations):
        for position in (*view.operation.inputs, *view.operation.outputs):
            last[position] = step
    dead: list[list[int]] = [[] for _ in subgraph.operations]
    for position, step in last.items():
        if position not in kept and position not in constants:
            dead[step].append(position)
    return dead
