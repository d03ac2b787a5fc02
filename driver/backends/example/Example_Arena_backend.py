"""A Python backend that uses what a simple one does not need: a planned arena, an optimisation, hooks, and a layout.

It runs element-wise operations on float32 images. All that lies between its inputs and its outputs is in one block of
memory, planned by lifetimes; inside it, images are in NC4HW4; and ADD with a RELU behind it becomes one step.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from driver.backends.api import (
    API_VERSION,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    OptimizedSubgraph,
    Output,
    Run,
    SubgraphView,
    Substitution,
    Support,
)
from driver.backends.layout import PACK, Layout, Relayout
from driver.backends.memory import MemoryManager, Piece, Storage
from nnhal.types import AnyArray, FusedActivationFunc, OperandType, OperationType, operation_name

Floats = NDArray[np.float32]

Kernel = Callable[[Sequence[AnyArray], Floats], None]
"""Writes the result of some inputs."""


def _binary(function: np.ufunc) -> Kernel:
    return lambda inputs, result: function(inputs[0], inputs[1], out=result)


def _relu(inputs: Sequence[AnyArray], result: Floats) -> None:
    np.maximum(inputs[0], np.float32(0), out=result)


def _add_and_relu(inputs: Sequence[AnyArray], result: Floats) -> None:
    np.add(inputs[0], inputs[1], out=result)
    np.maximum(result, np.float32(0), out=result)


KERNELS: dict[int, Kernel] = {
    OperationType.ADD: _binary(np.add),
    OperationType.SUB: _binary(np.subtract),
    OperationType.MUL: _binary(np.multiply),
    OperationType.MAXIMUM: _binary(np.maximum),
    OperationType.RELU: _relu,
}

_LAYOUT = Relayout(Layout.NHWC, Layout.NC4HW4)


class Arena(Backend):
    """The backend. It counts its networks by its hooks."""

    id = "ExampleArena"
    version = "1"

    def __init__(self) -> None:
        self.loaded: set[int] = set()

    def supports(self, operation: OperationView) -> Support:
        """Element-wise operations on images of one known shape."""
        if operation.type not in KERNELS:
            return Support(f"{operation_name(operation.type)} is not element-wise")
        graph = operation.graph
        used = [graph.operands[o] for o in (*_arguments(operation), *operation.operation.outputs)]
        if any(one.type != OperandType.TENSOR_FLOAT32 for one in used):
            return Support("only TENSOR_FLOAT32 is supported")
        if len({one.dimensions for one in used}) > 1 or len(used[0].dimensions) != 4 or 0 in used[0].dimensions:
            return Support("only images [N, H, W, C] of one known shape are supported", "TENSOR_FLOAT32 [N, H, W, C]")
        activation = operation.constant("activation")
        if "activation" in operation.positions and (activation is None or activation != FusedActivationFunc.NONE):
            return Support("a fused activation is not supported")
        return Support()

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Makes one step of an ADD and the RELU that alone reads it."""
        readers = {view.operation.inputs[0]: view for view in subgraph.operations if view.type == OperationType.RELU}
        found = []
        for view in subgraph.operations:
            (made,) = view.operation.outputs
            if view.type == OperationType.ADD and made in readers and subgraph.graph.reads[made] == 1:
                pair = subgraph.part([view.index, readers[made].index])
                if made not in pair.outputs:  # it may be an output of the model as well
                    step = _Step(view, _arguments(view), pair.outputs[0], _shape(view), _add_and_relu)
                    found.append(Substitution((view.index, readers[made].index), _Arena(pair, options, [step])))
        return OptimizedSubgraph(tuple(found))

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Plans the arena."""
        steps = [
            _Step(view, _arguments(view), view.operation.outputs[0], _shape(view), KERNELS[view.type])
            for view in subgraph.operations
        ]
        return _Arena(subgraph, options, steps)

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        """Counts it."""
        self.loaded.add(network)

    def after_unload(self, network: int) -> None:
        """Forgets it."""
        self.loaded.discard(network)


@dataclass(frozen=True)
class _Step:
    """One operation, or some in one: what it reads and writes."""

    view: OperationView
    reads: Sequence[int]
    writes: int
    shape: tuple[int, ...]
    kernel: Kernel


class _Arena(CompiledSubgraph):
    """Steps over one block."""

    memory: MemoryManager

    def __init__(self, subgraph: SubgraphView, options: CompileOptions, steps: Sequence[_Step]) -> None:
        self.memory = MemoryManager(options.memory_mode)
        self.layouts = dict.fromkeys((*subgraph.inputs, *subgraph.outputs), _LAYOUT)
        self._subgraph = subgraph
        self._steps = steps
        constants = subgraph.graph.constants
        self._constants = {o: _LAYOUT.to_own(constants[o]) for step in steps for o in step.reads if o in constants}
        self._places = self._planned()

    def _planned(self) -> list[Piece]:
        """The place of every result; that of what is read for the last time goes to the next."""
        last = {o: number for number, step in enumerate(self._steps) for o in step.reads}
        pieces: dict[int, Piece] = {}
        for number, step in enumerate(self._steps):
            pieces[step.writes] = self.memory.get(4 * prod(step.shape), Storage.DYNAMIC)
            for operand in dict.fromkeys(step.reads):
                if operand in pieces and last[operand] == number and operand not in self._subgraph.outputs:
                    self.memory.put(pieces[operand])
        return [pieces[step.writes] for step in self._steps]

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Runs each step into its place."""
        values = dict(self._constants)
        for operand, array in zip(self._subgraph.inputs, inputs, strict=True):
            assert array is not None, "no operation here has an optional argument"
            values[operand] = array
        for step, place in zip(self._steps, self._places, strict=True):
            run.check()
            began = time.perf_counter_ns()
            made: Floats = self.memory.bytes(place).view(np.float32).reshape(step.shape)
            step.kernel([values[o] for o in step.reads], made)
            values[step.writes] = made
            if run.profile is not None:
                name = operation_name(step.view.type)
                run.profile.span(name, began, time.perf_counter_ns() - began, step.view)
        for operand, output in zip(self._subgraph.outputs, outputs, strict=True):
            output.write(values[operand])  # copied: the arena is used again


def _arguments(view: OperationView) -> Sequence[int]:
    """Operands of its tensors; what comes behind is the activation."""
    return view.operation.inputs[: 1 if view.type == OperationType.RELU else 2]


def _shape(view: OperationView) -> tuple[int, ...]:
    """Of its result, in NC4HW4."""
    batches, height, width, channels = view.graph.operands[view.operation.outputs[0]].dimensions
    return batches, -(-channels // PACK), height, width, PACK


def GetBackendId() -> str:
    """Entry point."""
    return Arena.id


def GetVersion() -> tuple[int, int]:
    """Entry point."""
    return API_VERSION


def BackendFactory() -> Backend:
    """Entry point."""
    return Arena()
