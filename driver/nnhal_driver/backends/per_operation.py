"""Base class for backends that run one operation at a time. It handles shapes, order and deadlines.

class Npu(PerOperationBackend):
    id = "Npu"
    version = "1"

@Npu.creator(OperationType.RELU)                     # in this module or in any other of the plug-in
def relu(operation: OperationView) -> Workload | Support:
    if operation.operand("input").type != OperandType.TENSOR_FLOAT32:
        return Support("only TENSOR_FLOAT32 is supported")
    return lambda call: np.maximum(call.array("input"), np.float32(0))
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np

from nnhal.errors import general_failure
from nnhal.types import DTYPES, AnyArray, elements, is_extension, operation_name
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Graph,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from nnhal_driver.backends.deferral import TurnTakingRun
from nnhal_driver.backends.division import LARGE, DividedCall, copy_of
from nnhal_driver.backends.memory import MemoryManager
from nnhal_driver.operations import infer
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.operations.shape import check_shapes
from nnhal_driver.scheduling.paced_check import PacedCheck, proceed

Workload = Callable[[OperationCall], AnyArray | Sequence[AnyArray]]
"""Kernel of one operation. It returns the output, or all outputs, as new arrays or as views of inputs.

It may raise an ArithmeticError, for example if a scale is out of range; the execution then fails.
"""

Creator = Callable[[OperationView], Workload | Support]
"""Creates the workload of an operation, or returns why the backend does not support it. (1.2)"""
ShapeFunction = Callable[[OperationCall], Sequence[Shape]]
"""Returns the shapes of the outputs of an extension operation. It may call `call.require`. (1.2)"""

WorkloadFactory = Callable[[OperationView], Workload]
"""Creates the workloads of one subgraph. (1.2)"""

C = TypeVar("C", bound=Creator)


@dataclass(frozen=True, slots=True)
class _Registration:
    """A creator, and optional functions that go with it."""

    creator: Creator
    supports: Callable[[OperationView], Support] | None
    shapes: ShapeFunction | None


class PerOperationBackend(Backend):
    """A backend with a workload for each operation, from creators (`creator`) or from its own `workload`."""

    _divides: ClassVar[bool] = False
    _registrations: ClassVar[dict[tuple[str, int], _Registration]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Give each class a registry of its own."""
        super().__init_subclass__(**arguments)
        cls._registrations = {}

    @classmethod
    def creator(
        cls,
        *types: int,
        extension: str = "",
        supports: Callable[[OperationView], Support] | None = None,
        shapes: ShapeFunction | None = None,
    ) -> Callable[[C], C]:
        """Register the decorated function as the creator of operations of this class (since 1.2).

        Subclasses inherit the creators of their base classes, and may replace them.

        Args:
            *types: operation types, or numbers of operations of the extension.
            extension: name of the extension; "" for operations of the HAL.
            supports: returns whether an operation is supported. Without it, `supports` of the backend calls the
                creator, which should be fast then.
            shapes: returns the shapes of the outputs; only for extensions (see `output_shapes`).

        Raises:
            ValueError: an operation of this class has a creator already.
        """

        def register(function: C) -> C:
            if cls is PerOperationBackend:
                raise ValueError("register creators with your own class")
            for type_ in types:
                if (extension, type_) in cls._registrations:
                    name = f"operation {type_} of {extension}" if extension else operation_name(type_)
                    raise ValueError(f"{cls.__name__} has two creators for {name}")
                cls._registrations[extension, type_] = _Registration(function, supports, shapes)
            return function

        return register

    def supports(self, operation: OperationView) -> Support:
        """Return whether a creator supports an operation. Backends without creators override this."""
        registration = self._registration(operation)
        if registration is None:
            return Support(f"{self.id} has no creator for it")
        if registration.supports is not None:
            return registration.supports(operation)
        created = registration.creator(operation)
        return created if isinstance(created, Support) else Support()

    def workload(self, operation: OperationView) -> Workload:
        """Return the workload of an operation. Backends without creators override this.

        Raises:
            HalError: its creator does not support the operation.
        """
        registration = self._registration(operation)
        created = Support("there is no creator") if registration is None else registration.creator(operation)
        if isinstance(created, Support):
            raise general_failure(f"{operation.name}: {created.reason or 'its creator returned no workload'}")
        return created

    def create_workload_factory(self, memory: MemoryManager | None) -> WorkloadFactory:
        """Return the factory of the workloads of one subgraph (optional, 1.2). The default returns `workload`.

        The factory gets the operations in the order of execution. It may request pieces for a workload, which uses
        their bytes when it runs. A piece that is put back at once is scratch memory, which the next one reuses.
        `create_memory_manager` returned `memory`.
        """
        return self.workload

    def _registration(self, operation: OperationView) -> _Registration | None:
        type_ = operation.type & 0xFFFF if operation.extension else operation.type
        for class_ in type(self).__mro__:
            if issubclass(class_, PerOperationBackend):
                registration = class_._registrations.get((operation.extension, type_))
                if registration is not None:
                    return registration
        return None

    def output_shapes(self, call: OperationCall) -> Sequence[Shape] | None:
        """Return the shapes of the outputs of an extension operation, before its workload runs (optional, 1.2).

        The default calls `shapes` of its creator. If there is None, the results of the workload have the final shapes.
        Operations of the HAL have shape rules of their own. The host compares the shapes with the declared ones and
        with its limits.

        Raises:
            HalError: the arguments are invalid (`call.require`).
        """
        registration = self._registration(call.view)
        return None if registration is None or registration.shapes is None else registration.shapes(call)

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Return a subgraph that runs the workloads in order."""
        extension_types = {
            (extension.name, type_.type): np.dtype(np.uint8 if type_.byte_size == 1 else (np.void, type_.byte_size))
            for extension in self.extensions()
            for type_ in extension.operand_types
        }
        create_workload = self.create_workload_factory(options.memory)
        steps = []
        for view in subgraph.operations:
            options.check()
            arguments = view, create_workload(view), self._divides, options.tensor_bytes, extension_types
            is_own = is_extension(view.type)
            steps.append(_ExtensionStep(*arguments, self.output_shapes) if is_own else _Step(*arguments))
        return _Sequence(subgraph, steps, extension_types, self._divides)


_ExtensionDtypes = Mapping[tuple[str, int], "np.dtype[Any]"]
"""Dtypes of operand types of extensions, by extension and number."""


def _dtype(graph: Graph, operand: int, extension_types: _ExtensionDtypes) -> "np.dtype[Any] | None":
    """Return the dtype of an operand's values; None for extension types that the backend does not list."""
    type_ = graph.operands[operand].type
    return extension_types.get((graph.extension(type_), type_ & 0xFFFF)) if is_extension(type_) else DTYPES[type_]


class _Step:
    """One operation with its workload, and cached results of its shape rule."""

    def __init__(
        self,
        view: OperationView,
        workload: Workload,
        divides: bool,
        tensor_bytes: int,
        extension_types: _ExtensionDtypes,
    ) -> None:
        self.view = view
        self._workload = workload
        self._divides = divides
        self._tensor_bytes = tensor_bytes
        self._memo: dict[str, object] = {}
        self._varying = [i for i in view.operation.inputs if i not in view.graph.constants]
        self.outputs = view.operation.outputs
        self._declared = [view.graph.operands[o].dimensions for o in self.outputs]
        self._dtypes = [_dtype(view.graph, o, extension_types) for o in self.outputs]
        # results of the shape rule: output shapes, and values that it shares with the kernel
        self._inferences: dict[tuple[Shape | None, ...], tuple[Sequence[Shape], Mapping[str, object], int]] = {}

    def run(self, values: dict[int, AnyArray | None], outputs: dict[int, Output], check: Callable[[], None]) -> None:
        call, shapes = self._infer(values, outputs, check)
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
        self, values: dict[int, AnyArray | None], outputs: dict[int, Output], check: Callable[[], None]
    ) -> tuple[OperationCall, Sequence[Shape]]:
        """Return the call and the shapes of its outputs. Results that depend on shapes alone are cached by shapes."""
        declared = self._declared_shapes(outputs)
        key = (*[None if (value := values[i]) is None else value.shape for i in self._varying], *declared)
        if (inference := self._inferences.get(key)) is not None:
            shapes, shared, elements_ = inference
            if elements_ > LARGE:
                return DividedCall(self.view, values, self._memo, shared, check, elements_), shapes
            return OperationCall(self.view, values, self._memo, shared, check), shapes
        call_type = DividedCall if self._divides else OperationCall
        call = call_type(self.view, values, self._memo, check=check)
        shapes, elements_ = infer(call, declared, self._tensor_bytes), 0
        if isinstance(call, DividedCall):
            call.expect(shapes)
            elements_ = call.elements
        if not call.reads_values:
            if len(self._inferences) > 64:  # bounds the memory if a client keeps sending new shapes
                self._inferences.clear()
            self._inferences[key] = shapes, dict(call.inferred), elements_
        return call, shapes


class _ExtensionStep(_Step):
    """One operation of an extension. Its shapes come from the backend, or from the results of its workload."""

    def __init__(
        self,
        view: OperationView,
        workload: Workload,
        divides: bool,
        tensor_bytes: int,
        extension_types: _ExtensionDtypes,
        output_shapes: Callable[[OperationCall], Sequence[Shape] | None],
    ) -> None:
        super().__init__(view, workload, divides, tensor_bytes, extension_types)
        self._output_shapes = output_shapes

    def run(self, values: dict[int, AnyArray | None], outputs: dict[int, Output], check: Callable[[], None]) -> None:
        call = OperationCall(self.view, values, self._memo, check=check)
        declared: Sequence[Shape] = self._declared_shapes(outputs)
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

    def __init__(
        self, subgraph: SubgraphView, steps: list[_Step], extension_types: _ExtensionDtypes, divides: bool
    ) -> None:
        self._subgraph = subgraph
        self._divides = divides
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
        profile, pause = run.profile, PacedCheck(proceed)
        check = run.take_turns if self._divides and isinstance(run, TurnTakingRun) else run.check
        for step, dead in zip(self._steps, self._last_uses, strict=True):
            check()
            pause()
            if profile is None:
                step.run(values, destinations, check)
            else:
                start_ns = time.perf_counter_ns()
                step.run(values, destinations, check)
                duration_ns = time.perf_counter_ns() - start_ns
                profile.span(step.view.graph.operation_name(step.view.type), start_ns, duration_ns, step.view)
            for position in dead:
                values[position] = None
        for position, output in destinations.items():
            array = values[position]
            assert array is not None
            output.write(array if array.flags.c_contiguous else copy_of(array, check), keep=True)


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
