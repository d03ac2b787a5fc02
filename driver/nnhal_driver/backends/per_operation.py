"""Base class for backends that run one operation at a time. It handles shapes, order and deadlines."""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nnhal.types import DTYPES, AnyArray
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
)
from nnhal_driver.operations import infer
from nnhal_driver.operations.call import OperationCall, Shape

Workload = Callable[[OperationCall], AnyArray | Sequence[AnyArray]]
"""Kernel of one operation. It returns the output, or all outputs, as new arrays or as views of inputs.

It may raise an ArithmeticError, for example if a scale is out of range; the execution then fails.
"""

W = TypeVar("W", bound=Workload)


class PerOperationBackend(Backend):
    """A backend with a workload for each operation."""

    @abstractmethod
    def workload(self, operation: OperationView) -> Workload:
        """Return the workload of an operation."""

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Return a subgraph that runs the workloads in order."""
        steps = [_Step(view, self.workload(view), options.tensor_bytes) for view in subgraph.operations]
        return _Sequence(subgraph, steps)


@dataclass(frozen=True, slots=True)
class _Inference:
    """Result of a shape rule: output shapes, and values that it shares with the kernel."""

    shapes: Sequence[Shape]
    shared: Mapping[str, object]


class _Step:
    """One operation with its workload, and cached results of its shape rule."""

    def __init__(self, view: OperationView, workload: Workload, tensor_bytes: int) -> None:
        self.view = view
        self._workload = workload
        self._tensor_bytes = tensor_bytes
        self._memo: dict[str, object] = {}
        self._varying = [i for i in view.operation.inputs if i not in view.graph.constants]
        self.outputs = view.operation.outputs
        self._declared = [view.graph.operands[o].dimensions for o in self.outputs]
        self._dtypes = [DTYPES[view.graph.operands[o].type] for o in self.outputs]
        self._inferences: dict[tuple[Shape | None, ...], _Inference] = {}

    def run(self, values: dict[int, AnyArray | None], outputs: dict[int, Output]) -> None:
        call, shapes = self._infer(values, outputs)
        try:
            result = self._workload(call)
        except ArithmeticError as error:
            raise call.failure(str(error)) from None
        arrays = [result] if isinstance(result, np.ndarray) else result
        for position, array, shape, dtype in zip(self.outputs, arrays, shapes, self._dtypes, strict=True):
            assert array.shape == shape and array.dtype == dtype, (
                f"{self.view.name} returned {array.dtype} {array.shape}; expected {dtype} {shape}"
            )
            values[position] = array

    def _infer(
        self, values: dict[int, AnyArray | None], outputs: dict[int, Output]
    ) -> tuple[OperationCall, Sequence[Shape]]:
        """Return the call and the shapes of its outputs. Results that depend on shapes alone are cached by shapes."""
        declared = [
            outputs[o].declared if o in outputs else d for o, d in zip(self.outputs, self._declared, strict=True)
        ]
        key = (*[None if (value := values[i]) is None else value.shape for i in self._varying], *declared)
        if (inference := self._inferences.get(key)) is not None:
            return OperationCall(self.view, values, self._memo, inference.shared), inference.shapes
        call = OperationCall(self.view, values, self._memo)
        shapes = infer(call, declared, self._tensor_bytes)
        if not call.reads_values:
            if len(self._inferences) > 64:  # bounds the memory if a client keeps sending new shapes
                self._inferences.clear()
            self._inferences[key] = _Inference(shapes, dict(call.inferred))
        return call, shapes


class _Sequence(CompiledSubgraph):
    """A subgraph as a sequence of workloads."""

    def __init__(self, subgraph: SubgraphView, steps: list[_Step]) -> None:
        self._subgraph = subgraph
        self._steps = steps
        # only operands of this partition: a graph may have as many partitions as operands
        constants = subgraph.graph.constants
        operands = (o for view in subgraph.operations for o in (*view.operation.inputs, *view.operation.outputs))
        self._template = {operand: constants.get(operand) for operand in operands}
        self._last_uses = _last_uses(subgraph)

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        values = self._template.copy()
        for position, array in zip(self._subgraph.inputs, inputs, strict=True):
            values[position] = array
        destinations = dict(zip(self._subgraph.outputs, outputs, strict=True))
        profile = run.profile
        for step, dead in zip(self._steps, self._last_uses, strict=True):
            run.check()
            if profile is None:
                step.run(values, destinations)
            else:
                start_ns = time.perf_counter_ns()
                step.run(values, destinations)
                duration_ns = time.perf_counter_ns() - start_ns
                profile.span(step.view.graph.operation_name(step.view.type), start_ns, duration_ns, step.view)
            for position in dead:
                values[position] = None
        for position, output in destinations.items():
            array = values[position]
            assert array is not None
            output.write(array, keep=True)


def _last_uses(subgraph: SubgraphView) -> list[list[int]]:
    """Return, for each operation, the operands that nothing reads after it. Their memory is freed at once."""
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
