"""Base class for backends that run one operation at a time. It handles shapes, order and deadlines."""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np

from nnhal.types import DTYPES, AnyArray, Extension, elements, is_extension
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Graph,
    OperationView,
    Output,
    Run,
    SubgraphView,
)
from nnhal_driver.operations import infer
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import check_shapes

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

    def output_shapes(self, call: OperationCall) -> Sequence[Shape] | None:
        """Return the shapes of the outputs of an extension operation, before its workload runs (optional, 1.2).

        If it returns None, which is the default, the results of the workload have the final shapes. Operations of the
        HAL have shape rules of their own. The host compares the shapes with the declared ones and with its limits.

        Raises:
            HalError: the arguments are invalid (`call.require`).
        """
        return None

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Return a subgraph that runs the workloads in order."""
        extension_types = _extension_dtypes(self.extensions())
        steps = [self._step(view, options.tensor_bytes, extension_types) for view in subgraph.operations]
        return _Sequence(subgraph, steps, extension_types)

    def _step(self, view: OperationView, tensor_bytes: int, extension_types: "_ExtensionDtypes") -> "_Step":
        workload = self.workload(view)
        if is_extension(view.type):
            return _ExtensionStep(view, workload, tensor_bytes, extension_types, self.output_shapes)
        return _Step(view, workload, tensor_bytes, extension_types)


_ExtensionDtypes = Mapping[tuple[str, int], "np.dtype[Any]"]
"""Dtypes of operand types of extensions, by extension and number."""


def _extension_dtypes(extensions: Sequence[Extension]) -> _ExtensionDtypes:
    return {
        (extension.name, type_.type): np.dtype(np.uint8 if type_.byte_size == 1 else (np.void, type_.byte_size))
        for extension in extensions
        for type_ in extension.operand_types
    }


def _dtype(graph: Graph, operand: int, extension_types: _ExtensionDtypes) -> "np.dtype[Any] | None":
    """Return the dtype of an operand's values; None for extension types that the backend does not list."""
    type_ = graph.operands[operand].type
    return extension_types.get((graph.extension(type_), type_ & 0xFFFF)) if is_extension(type_) else DTYPES[type_]


@dataclass(frozen=True, slots=True)
class _Inference:
    """Result of a shape rule: output shapes, and values that it shares with the kernel."""

    shapes: Sequence[Shape]
    shared: Mapping[str, object]


class _Step:
    """One operation with its workload, and cached results of its shape rule."""

    def __init__(
        self, view: OperationView, workload: Workload, tensor_bytes: int, extension_types: _ExtensionDtypes
    ) -> None:
        self.view = view
        self._workload = workload
        self._tensor_bytes = tensor_bytes
        self._memo: dict[str, object] = {}
        self._varying = [i for i in view.operation.inputs if i not in view.graph.constants]
        self.outputs = view.operation.outputs
        self._declared = [view.graph.operands[o].dimensions for o in self.outputs]
        self._dtypes = [_dtype(view.graph, o, extension_types) for o in self.outputs]
        self._inferences: dict[tuple[Shape | None, ...], _Inference] = {}

    def run(self, values: dict[int, AnyArray | None], outputs: dict[int, Output]) -> None:
        call, shapes = self._infer(values, outputs)
        arrays = self._compute(call)
        for position, array, shape, dtype in zip(self.outputs, arrays, shapes, self._dtypes, strict=True):
            assert array.shape == shape and array.dtype == dtype, (
                f"{self.view.name} returned {array.dtype} {array.shape}; expected {dtype} {shape}"
            )
            values[position] = array

    def _compute(self, call: OperationCall) -> Sequence[AnyArray]:
        try:
            result = self._workload(call)
        except ArithmeticError as error:
            raise call.failure(str(error)) from None
        return [result] if isinstance(result, np.ndarray) else result

    def _declared_shapes(self, outputs: Mapping[int, Output]) -> list[Shape]:
        return [outputs[o].declared if o in outputs else d for o, d in zip(self.outputs, self._declared, strict=True)]

    def _infer(
        self, values: dict[int, AnyArray | None], outputs: dict[int, Output]
    ) -> tuple[OperationCall, Sequence[Shape]]:
        """Return the call and the shapes of its outputs. Results that depend on shapes alone are cached by shapes."""
        declared = self._declared_shapes(outputs)
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


class _ExtensionStep(_Step):
    """One operation of an extension. Its shapes come from the backend, or from the results of its workload."""

    def __init__(
        self,
        view: OperationView,
        workload: Workload,
        tensor_bytes: int,
        extension_types: _ExtensionDtypes,
        output_shapes: Callable[[OperationCall], Sequence[Shape] | None],
    ) -> None:
        super().__init__(view, workload, tensor_bytes, extension_types)
        self._output_shapes = output_shapes

    def run(self, values: dict[int, AnyArray | None], outputs: dict[int, Output]) -> None:
        call = OperationCall(self.view, values, self._memo)
        declared = self._declared_shapes(outputs)
        if (expected := self._output_shapes(call)) is not None:
            declared = self._check(call, declared, expected, [dtype.itemsize if dtype else 0 for dtype in self._dtypes])
        arrays = self._compute(call)
        self._check(call, declared, [array.shape for array in arrays], [array.itemsize for array in arrays])
        for number, (position, array, dtype) in enumerate(zip(self.outputs, arrays, self._dtypes, strict=True)):
            if dtype not in (None, array.dtype):
                raise call.failure(f"output {number} is {array.dtype}; expected {dtype}")
            values[position] = array

    def _compute(self, call: OperationCall) -> Sequence[AnyArray]:
        result = super()._compute(call)
        arrays = [result] if isinstance(result, np.generic) else result
        return [np.asarray(array) for array in arrays]  # elements of an array of np.void are not arrays

    def _check(
        self, call: OperationCall, declared: Sequence[Shape], shapes: Sequence[Shape], itemsizes: Sequence[int]
    ) -> Sequence[Shape]:
        if len(shapes) != len(declared):
            raise call.failure(f"it gives {len(shapes)} outputs; expected {len(declared)}")
        sizes = [prod(shape) * itemsize for shape, itemsize in zip(shapes, itemsizes, strict=True)]
        return check_shapes(call, declared, shapes, sizes, self._tensor_bytes)


class _Sequence(CompiledSubgraph):
    """A subgraph as a sequence of workloads."""

    def __init__(self, subgraph: SubgraphView, steps: list[_Step], extension_types: _ExtensionDtypes) -> None:
        self._subgraph = subgraph
        self._steps = steps
        # only operands of this partition: a graph may have as many partitions as operands
        operands = (o for view in subgraph.operations for o in (*view.operation.inputs, *view.operation.outputs))
        self._template = {operand: _constant(subgraph.graph, operand, extension_types) for operand in operands}
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


def _constant(graph: Graph, operand: int, extension_types: _ExtensionDtypes) -> AnyArray | None:
    """Return the value of a constant in the form of inputs. The graph has bytes for extension types."""
    value, described = graph.constants.get(operand), graph.operands[operand]
    if value is None or not is_extension(described.type):
        return value
    dtype = _dtype(graph, operand, extension_types)
    if dtype is None:
        return elements(value, described.dimensions) if 0 not in described.dimensions else value
    if value.nbytes % dtype.itemsize:
        return value
    array: AnyArray = value.view(dtype)
    return array.reshape(described.dimensions) if array.size == prod(described.dimensions) else array


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
