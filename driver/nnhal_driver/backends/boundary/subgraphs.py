"""Compiled subgraphs of backends: how the host gets them, and how it runs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.activity import note_backend
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OptimizedSubgraph,
    Output,
    Run,
    Sections,
    SubgraphView,
    Substitution,
)
from nnhal_driver.backends.boundary.answers import extensions
from nnhal_driver.backends.boundary.calls import Named, call, describe, invalid_answer, translated
from nnhal_driver.backends.boundary.isolation import is_isolated, isolated
from nnhal_driver.backends.boundary.outputs import CheckedOutput, OutputSpec
from nnhal_driver.backends.deferral import Wait, take_deferred, wait_for_all
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory
from nnhal_driver.backends.layout import Layout, Relayout
from nnhal_driver.backends.memory import MemoryManager
from nnhal_driver.extension_types import extension_types

_MODEL_LAYOUTS = (Layout.NHWC, Layout.NCHW)


def compile_subgraph(backend: Backend, view: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
    """Compile a subgraph.

    Raises:
        HalError: the backend fails, or its answer is invalid.
        MemoryError: there is not enough memory.
    """
    return _create(backend, "compile", backend.compile, view, options)


def load_subgraph(
    backend: Backend, view: SubgraphView, sections: Sections, options: CompileOptions
) -> CompiledSubgraph:
    """Load a subgraph from its saved sections. Raises as `compile_subgraph`."""
    return _create(backend, "load", lambda view, options: backend.load(view, sections, options), view, options)


def _create(
    backend: Backend,
    method: str,
    create: Callable[[SubgraphView, CompileOptions], CompiledSubgraph],
    view: SubgraphView,
    options: CompileOptions,
) -> CompiledSubgraph:
    """Call a method with a planner of the backend, if it creates one. The host acquires it if it is used."""
    memory: object = call(backend, "create_memory_manager", backend.create_memory_manager, options)
    if isinstance(memory, MemoryManager):
        options = replace(options, memory=memory)
    elif memory is not None:
        fault = f"returned {describe(memory)}; expected a MemoryManager or None"
        raise invalid_answer(backend, "create_memory_manager", fault)
    compiled = check_compiled(backend, method, view, call(backend, method, create, view, options))
    if compiled.memory is None and options.memory is not None and options.memory.peak_bytes:
        object.__setattr__(compiled, "memory", options.memory)  # it may be a frozen dataclass
    return compiled


def optimize_subgraph(backend: Backend, view: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
    """Optimize a subgraph. Raises as `compile_subgraph`."""
    answer: object = call(backend, "optimize", backend.optimize, view, options)
    if fault := _optimization_fault(view, answer):
        raise invalid_answer(backend, "optimize", fault)
    assert isinstance(answer, OptimizedSubgraph)
    failed = {i: reason or "the backend gave no reason" for i, reason in answer.failed.items()}
    return OptimizedSubgraph(tuple(answer.substitutions), failed)


def _optimization_fault(view: SubgraphView, answer: object) -> str:
    """Return why an answer of `optimize` is invalid, or ""."""
    if not isinstance(answer, OptimizedSubgraph):
        return f"returned {describe(answer)}; expected an OptimizedSubgraph"
    substitutions: object = answer.substitutions
    if not isinstance(substitutions, tuple | list):
        return f"returned substitutions={describe(substitutions)}; expected a tuple"
    if fault := next(filter(None, map(_substitution_fault, substitutions)), ""):
        return fault
    failed: object = answer.failed
    if not isinstance(failed, Mapping) or not all(isinstance(reason, str) for reason in failed.values()):
        return f"returned failed={describe(failed)}; expected reasons by operation"
    named = [*failed, *(i for entry in substitutions for i in entry.operations)]
    own = {operation.index for operation in view.operations}
    empty = any(not entry.operations for entry in substitutions)
    if empty or len(set(named)) < len(named) or not own.issuperset(named):
        return f"must name operations of the subgraph, each once: {describe(named)}"
    return ""


def _substitution_fault(entry: object) -> str:
    """Return why a substitution is invalid, or ""."""
    if not isinstance(entry, Substitution) or not isinstance(entry.operations, tuple | list):
        return f"returned {describe(entry)}; expected a Substitution"
    if not all(isinstance(i, int) for i in entry.operations):
        return f"names operations {describe(entry.operations)}; expected indexes"
    if not isinstance(entry.compiled, CompiledSubgraph):
        return f"substitutes {describe(entry.compiled)}; expected a CompiledSubgraph"
    return ""


def check_compiled(backend: Backend, method: str, view: SubgraphView, compiled: object) -> CompiledSubgraph:
    """Return what a method of a backend returned, if it is a compiled subgraph that the host can use.

    Raises:
        HalError: GENERAL_FAILURE: it has the wrong type, or invalid attributes.
    """
    if not isinstance(compiled, CompiledSubgraph):
        raise invalid_answer(backend, method, f"returned {describe(compiled)}; expected a CompiledSubgraph")
    if fault := call(backend, method, _attribute_fault, compiled, view):
        raise invalid_answer(backend, method, f"returned a subgraph {fault}")
    return compiled


def _attribute_fault(compiled: CompiledSubgraph, view: SubgraphView) -> str:
    """Return why the attributes of a compiled subgraph are invalid, or ""."""
    memory, copies, layouts = compiled.memory, compiled.copies_inputs, compiled.layouts
    if memory is not None and not all(callable(getattr(memory, name, None)) for name in ("acquire", "release")):
        return f"with memory {describe(memory)}; expected a MemoryManager or None"
    if not isinstance(copies, bool):
        return f"with copies_inputs {describe(copies)}; expected a bool"
    if not isinstance(layouts, Mapping):
        return f"with layouts {describe(layouts)}; expected a mapping"
    if fault := _device_fault(view, compiled.device_operands, layouts):
        return fault
    return next(filter(None, (_layout_fault(view, *item) for item in layouts.items())), "")


def _device_fault(view: SubgraphView, devices: object, layouts: Mapping[int, Relayout]) -> str:
    """Return why a backend cannot have operands in memory of its own, or ""."""
    if not isinstance(devices, Mapping):
        return f"with device_operands {describe(devices)}; expected a mapping"
    for operand, memory in devices.items():
        if operand not in (*view.inputs, *view.outputs) or not isinstance(operand, int):
            return f"with memory for operand {describe(operand)}; expected an input or output"
        if not isinstance(memory, DeviceMemory):
            return f"with {describe(memory)} for operand {operand}; expected a DeviceMemory"
        if operand in layouts:
            return f"with memory and a layout for operand {operand}; its memory may have any layout"
    return ""


def _layout_fault(view: SubgraphView, operand: object, relayout: object) -> str:
    """Return why a backend cannot declare a layout for an operand, or ""."""
    if operand not in (*view.inputs, *view.outputs) or not isinstance(operand, int):
        return f"with a layout for operand {describe(operand)}; expected an input or output"
    if not isinstance(relayout, Relayout) or relayout.model not in _MODEL_LAYOUTS or relayout.own not in Layout:
        return f"with layout {describe(relayout)} for operand {operand}; expected a Relayout from NHWC or NCHW"
    dimensions = view.graph.operands[operand].dimensions
    if len(dimensions) != 4 or (operand in view.outputs and 0 in dimensions):
        expected = "expected rank 4, with known dimensions for an output"
        return f"with a layout for operand {operand} of shape {list(dimensions)}; {expected}"
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class CheckedMemory(DeviceMemory):
    """Memory of a backend. Two objects are equal if they are for the same memory."""

    backend: Named
    memory: DeviceMemory

    def __hash__(self) -> int:
        return id(self.memory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CheckedMemory) and other.memory is self.memory

    def acquire(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> DeviceBuffer:
        """Return a new buffer. Raises HalError if the backend fails, or MemoryError."""
        return call(self.backend, "acquire", self.memory.acquire, shape, dtype)

    def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        """Copy a value. Raises as `acquire`."""
        call(self.backend, "copy", self.memory.copy, source, target)

    def to_own(self, array: AnyArray) -> DeviceBuffer:
        """Return a buffer with the value of an array, in one call. Raises as `acquire`."""
        return call(self.backend, "copy", self.memory.to_own, array)

    def keep(self, buffer: DeviceBuffer) -> bool:
        """Return whether a value may stay here. Raises as `acquire`."""
        is_overridden = type(self.memory).keep is not DeviceMemory.keep
        return is_overridden and call(self.backend, "keep", self.memory.keep, buffer) is True


class CheckedSubgraph(CompiledSubgraph):
    """Compiled subgraph whose exceptions are translated and whose outputs are checked. All that a plan runs is one.

    Attributes:
        compiled: what runs it; `compile_subgraph` or `load_subgraph` has checked it.
    """

    def __init__(
        self, backend: Backend, view: SubgraphView, compiled: CompiledSubgraph, options: CompileOptions
    ) -> None:
        self.compiled = compiled
        self.layouts = dict(compiled.layouts)
        self.device_operands = {
            operand: CheckedMemory(backend, memory) for operand, memory in compiled.device_operands.items()
        }
        self.copies_inputs = compiled.copies_inputs
        self._backend = backend
        self._id = backend.id
        self._execute: Callable[[Sequence[AnyArray | None], Sequence[Output], Run], None] = compiled.execute
        if is_isolated(backend):
            self._execute = lambda *arguments: isolated(backend, "execute", partial(compiled.execute, *arguments))
        graph = view.graph
        types = extension_types(graph.extensions, extensions(backend)) if graph.extensions else {}
        self._expected = []
        for number, operand in enumerate(view.outputs):
            name = f"output {number} of a partition of {backend.id} (operand {operand} of {graph.name})"
            self._expected.append(OutputSpec(name, graph, operand, types, self, options.tensor_bytes))

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Run the subgraph.

        Raises:
            HalError: the backend fails, or an output is invalid or missing.
            MemoryError: there is not enough memory.
        """
        checked = []  # hot path: loops and not comprehensions, which are calls
        for destination, expected in zip(outputs, self._expected):  # noqa: B905
            checked.append(CheckedOutput(destination, expected, run))
        deferred = getattr(run, "deferred", None)
        earlier = len(deferred) if deferred else 0
        note_backend(self._id)
        try:
            self._execute(inputs, checked, run)
            if getattr(run, "deferred", None) and self._defer(checked, run, earlier):
                return
            for output in checked:
                if output.destination is not None:
                    raise output.missing()
        except BaseException as error:
            self._defer(checked, run, earlier)
            raise self._failed(checked, error, run) from None

    def _defer(self, checked: Sequence[CheckedOutput], run: Run, earlier: int) -> bool:
        """Make the waits that an execution has deferred part of the boundary. Return whether there are any."""
        waits = take_deferred(run, earlier)
        if waits:
            run.defer(lambda: self._finish(checked, waits, run))
        return bool(waits)

    def _finish(self, checked: Sequence[CheckedOutput], waits: list[Wait], run: Run) -> None:
        """Wait for a deferred execution. Raises as `execute`."""
        try:
            isolated(self._backend, "wait_deferred", lambda: wait_for_all(waits))
            for output in checked:
                if output.destination is not None:
                    raise output.missing()
        except BaseException as error:
            raise self._failed(checked, error, run) from None

    def _failed(self, checked: Sequence[CheckedOutput], error: BaseException, run: Run) -> BaseException:
        """Return the error of a failed execution."""
        for output in checked:
            output.destination = None  # the memory of a failed execution may already be in other use
        return translated(self._backend.id, "execute", error, run.check)

    def save(self) -> Sections | None:
        """Return the data that the compiled subgraph saves, or None.

        Raises:
            HalError: the backend fails, or its answer is invalid.
            MemoryError: there is not enough memory.
        """
        sections: object = call(self._backend, "save", self.compiled.save)
        if sections is None:
            return None
        if not isinstance(sections, Sections):
            raise invalid_answer(self._backend, "save", f"returned {describe(sections)}; expected Sections or None")
        if not isinstance(sections.model, bytes | bytearray):
            raise invalid_answer(self._backend, "save", f"returned model {describe(sections.model)}; expected bytes")
        data: object = sections.data
        are_arrays = isinstance(data, tuple | list) and all(
            isinstance(array, np.ndarray) and not array.dtype.hasobject for array in data
        )
        if not are_arrays:
            raise invalid_answer(self._backend, "save", f"returned data {describe(data)}; expected a tuple of arrays")
        return sections
