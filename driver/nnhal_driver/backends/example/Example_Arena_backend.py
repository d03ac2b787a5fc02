"""Example of a Python backend with advanced features: planned memory, an optimization, hooks, and a layout.

It runs element-wise operations on float32 images. All intermediate values are in one block of memory, planned by their
lifetimes. Images are in NC4HW4. An ADD followed by a RELU becomes one step.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from nnhal_backend.v1 import (
    API_VERSION,
    PACK,
    AnyArray,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    FusedActivationFunc,
    Layout,
    MemoryManager,
    OperandType,
    OperationType,
    OperationView,
    OptimizedSubgraph,
    Output,
    Piece,
    Relayout,
    Run,
    Storage,
    SubgraphView,
    Substitution,
    Support,
    operation_name,
)

Floats = NDArray[np.float32]

Kernel = Callable[[Sequence[AnyArray], Floats], None]
"""Computes a result from inputs."""


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
    """The backend. Its hooks keep track of loaded networks."""

    id = "ExampleArena"
    version = "1"

    def __init__(self) -> None:
        self.loaded: set[int] = set()

    def supports(self, operation: OperationView) -> Support:
        """Support element-wise operations on images of one known shape."""
        if operation.type not in KERNELS:
            return Support(f"{operation_name(operation.type)} is not element-wise")
        graph = operation.graph
        tensors = [graph.operands[o] for o in (*_arguments(operation), *operation.operation.outputs)]
        if any(tensor.type != OperandType.TENSOR_FLOAT32 for tensor in tensors):
            return Support("only TENSOR_FLOAT32 is supported")
        shape = tensors[0].dimensions
        if any(tensor.dimensions != shape for tensor in tensors) or len(shape) != 4 or 0 in shape:
            return Support("only images [N, H, W, C] of one known shape are supported", "TENSOR_FLOAT32 [N, H, W, C]")
        activation = operation.constant("activation")
        if "activation" in operation.positions and (activation is None or activation != FusedActivationFunc.NONE):
            return Support("a fused activation is not supported")
        return Support()

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Fuse an ADD with a RELU that is its only reader."""
        readers = {view.operation.inputs[0]: view for view in subgraph.operations if view.type == OperationType.RELU}
        substitutions = []
        for view in subgraph.operations:
            (total,) = view.operation.outputs
            if view.type == OperationType.ADD and total in readers and subgraph.graph.use_counts[total] == 1:
                indexes = view.index, readers[total].index
                pair = subgraph.part(indexes)
                if total not in pair.outputs:  # it may be an output of the model too
                    step = _ArenaStep(view, _arguments(view), pair.outputs[0], _shape(view), _add_and_relu)
                    substitutions.append(Substitution(indexes, _Arena(pair, options, [step])))
        return OptimizedSubgraph(tuple(substitutions))

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Plan the memory of all steps."""
        steps = [
            _ArenaStep(view, _arguments(view), view.operation.outputs[0], _shape(view), KERNELS[view.type])
            for view in subgraph.operations
        ]
        return _Arena(subgraph, options, steps)

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        """Record the network."""
        self.loaded.add(network)

    def after_unload(self, network: int) -> None:
        """Forget the network."""
        self.loaded.discard(network)


@dataclass(frozen=True)
class _ArenaStep:
    """One operation, or several fused ones: what it reads and writes."""

    view: OperationView
    reads: Sequence[int]
    writes: int
    shape: tuple[int, ...]
    kernel: Kernel


class _Arena(CompiledSubgraph):
    """A sequence of steps whose results are in one block."""

    memory: MemoryManager

    def __init__(self, subgraph: SubgraphView, options: CompileOptions, steps: Sequence[_ArenaStep]) -> None:
        self.memory = MemoryManager(options.memory_mode)
        self.layouts = dict.fromkeys((*subgraph.inputs, *subgraph.outputs), _LAYOUT)
        self._subgraph = subgraph
        self._steps = steps
        constants = subgraph.graph.constants
        self._constants = {o: _LAYOUT.to_own(constants[o]) for step in steps for o in step.reads if o in constants}
        self._pieces = self._plan()

    def _plan(self) -> list[Piece]:
        """Return the memory of each step's result. The next step reuses the memory of a value after its last use."""
        last = {o: number for number, step in enumerate(self._steps) for o in step.reads}
        pieces: dict[int, Piece] = {}
        for number, step in enumerate(self._steps):
            pieces[step.writes] = self.memory.get(4 * prod(step.shape), Storage.DYNAMIC)
            for operand in dict.fromkeys(step.reads):
                if operand in pieces and last[operand] == number and operand not in self._subgraph.outputs:
                    self.memory.put(pieces[operand])
        return [pieces[step.writes] for step in self._steps]

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Run the steps in order."""
        values = dict(self._constants)
        for operand, array in zip(self._subgraph.inputs, inputs, strict=True):
            assert array is not None, "no operation here has an optional argument"
            values[operand] = array
        for step, piece in zip(self._steps, self._pieces, strict=True):
            run.check()
            start_ns = time.perf_counter_ns()
            result: Floats = self.memory.bytes(piece).view(np.float32).reshape(step.shape)
            step.kernel([values[o] for o in step.reads], result)
            values[step.writes] = result
            if run.profile is not None:
                name = operation_name(step.view.type)
                run.profile.span(name, start_ns, time.perf_counter_ns() - start_ns, step.view)
        for operand, output in zip(self._subgraph.outputs, outputs, strict=True):
            output.write(values[operand])  # without keep: the block is reused


def _arguments(view: OperationView) -> Sequence[int]:
    """Return the tensor operands of an operation, without the activation."""
    return view.operation.inputs[: 1 if view.type == OperationType.RELU else 2]


def _shape(view: OperationView) -> tuple[int, ...]:
    """Return the shape of the result in NC4HW4."""
    batches, height, width, channels = view.graph.operands[view.operation.outputs[0]].dimensions
    return batches, -(-channels // PACK), height, width, PACK


def GetBackendId() -> str:
    """Return the id of the backend."""
    return Arena.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the interface that the backend was written for."""
    return API_VERSION


def BackendFactory() -> Backend:
    """Create a backend; called once for each device."""
    return Arena()
