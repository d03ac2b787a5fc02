"""Subgraph that a native plug-in compiled, and its executions.

The plug-in calls back for the memory of outputs, to check for cancellation, and to report spans. Errors in callbacks
cannot pass through C. They are stored, and raised after the plug-in has returned.
"""

import ctypes as c
import itertools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus
from nnhal_driver.backends.api import (
    CompiledSubgraph,
    CompileOptions,
    Output,
    Run,
    Sections,
    SubgraphView,
)
from nnhal_driver.backends.boundary.outputs import check_size, fits, shape_error
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.native.device_memory import NativeBuffer, NativeMemory
from nnhal_driver.backends.native.library import FunctionTable
from nnhal_driver.backends.native.marshalling import (
    ExtensionTypes,
    HasStruct,
    SubgraphStruct,
    TensorList,
    TensorStruct,
    contiguous,
)
from nnhal_driver.backends.native.memory import Addresses, PlannedMemory, allocate_buffer
from nnhal_driver.validation.rank import check_rank

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Plugin:
    """State that the compiled subgraphs of one backend object share."""

    table: FunctionTable
    callbacks: "Callbacks"
    types: ExtensionTypes
    memory: NativeMemory
    capabilities: Mapping[str, bool]


class NativeSubgraph(CompiledSubgraph):
    """A compiled subgraph of a plug-in, by the plug-in's handle. The plug-in may read the struct at any time."""

    def __init__(
        self,
        plugin: Plugin,
        handle: int | None,
        struct: SubgraphStruct,
        memory: PlannedMemory,
        view: SubgraphView,
        options: CompileOptions,
    ) -> None:
        capabilities = plugin.capabilities
        self.copies_inputs = capabilities.get("CopiesInputs", False)
        self.planned_memory = memory
        self.plugin = plugin
        self._table = plugin.table
        self._handle = handle
        self._struct = struct
        self.view = view
        self.tensor_bytes = options.tensor_bytes
        self._accepts_strides = capabilities.get("StridedInputs", False)
        self._is_serial = not capabilities.get("ConcurrentExecution", False)
        self._lock = threading.Lock() if self._is_serial or memory else None
        self._shapes: list[tuple[int, ...] | None] | None = None

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Run the subgraph. Executions are serialized unless the plug-in supports concurrent ones."""
        tensors = TensorList(self._convert_inputs(inputs))
        execution = Execution(self, outputs, run)
        with ExitStack() as ends:
            ends.enter_context(self._lock or nullcontext())
            run.check()
            self._resize(inputs, tensors)
            addresses = ends.enter_context(self.planned_memory.acquire())
            ends.enter_context(self._hooks("execute"))
            context = ends.enter_context(self.plugin.callbacks.register(execution))
            struct = self.plugin.callbacks.struct(context, tensors, len(self.view.outputs), addresses)
            try:
                self._run(execution, "execute", c.byref(struct))
            finally:
                if execution.deferred:
                    rest = ends.pop_all()
                    run.defer(lambda: self._finish(execution, rest, (struct, tensors)))
            if execution.deferred:
                execution.deliver_buffers()
                return
            if self._table.has("wait_finish"):
                self._run(execution, "wait_finish")
        execution.deliver()

    def _finish(self, execution: "Execution", ends: ExitStack, used: tuple[object, ...]) -> None:
        """Wait for a deferred execution, which has used some structs until then."""
        with ends:
            (state,) = execution.deferred
            self._run(execution, "wait_deferred", state)
            del used
        execution.deliver()

    def _convert_inputs(self, inputs: Sequence[Any]) -> Iterator[HasStruct | None]:
        """Yield the inputs in the form that the plug-in accepts."""
        for operand, array in zip(self.view.inputs, inputs, strict=True):
            if array is None or operand in self.device_operands:
                yield array
                continue
            value = self.plugin.types.as_elements(self.view.graph, operand, array)
            yield TensorStruct(value if self._accepts_strides else contiguous(value))

    def save(self) -> Sections | None:
        """Return the plug-in's sections, or None if it cannot save."""
        if not self._table.has("save"):
            return None
        saved = bytearray()

        def write(context: int, data: int, size: int) -> int:
            saved.extend(c.string_at(data, size))
            return ErrorStatus.NONE

        sink = abi.Sink(c.sizeof(abi.Sink), None, abi.WriteFunction(write))
        self._table.run("save", self._handle, c.byref(sink))
        return Sections(bytes(saved))

    def _run(self, execution: "Execution", name: str, *arguments: object) -> None:
        """Call a function of the plug-in. An error in a callback is the reason for its own, if there is one."""
        try:
            self._table.run(name, self._handle, *arguments)
        except HalError:
            if execution.error is None:
                raise
        if execution.error is not None:
            raise execution.error

    def _resize(self, inputs: Sequence[AnyArray | None], tensors: TensorList) -> None:
        if not self._is_serial:
            return
        shapes = [None if array is None else array.shape for array in inputs]
        if shapes == self._shapes:
            return
        self._shapes = None  # if it fails, the next execution resizes again
        with self._hooks("resize"):
            if self._table.has("resize"):
                self.planned_memory.planning = True
                try:
                    self._table.run("resize", self._handle, len(inputs), tensors.struct)
                finally:
                    self.planned_memory.planning = False
        self._shapes = shapes

    @contextmanager
    def _hooks(self, name: str) -> Iterator[None]:
        """Call the optional functions of the plug-in before and after a step."""
        self._table.hook(f"{name}_begin", self._handle)
        try:
            yield
        finally:
            self._table.hook(f"{name}_end", self._handle)


class Execution:
    """State of one execution for the callbacks.

    Attributes:
        error: first error in a callback.
        profile: receiver of spans, or None.
        deferred: the state that the plug-in passed to `defer`; empty if it has not called it.
    """

    def __init__(self, compiled: NativeSubgraph, outputs: Sequence[Output], run: Run) -> None:
        self.view = compiled.view
        self.error: BaseException | None = None
        self.profile = run.profile
        self.check = run.check
        self.deferred: list[int | None] = []
        self._compiled = compiled
        self._outputs = outputs
        self._tensors: dict[int, TensorStruct | NativeBuffer] = {}
        self._delivered: set[int] = set()

    def output(self, index: int, shape: tuple[int, ...]) -> int:
        """Allocate an output and return the address of its tensor."""
        if index >= len(self._outputs):
            raise general_failure(f"the backend asked for output {index} of {len(self._outputs)}")
        if index in self._tensors:
            raise general_failure(f"the backend asked for output {index} twice")
        operand, declared = self.view.outputs[index], self._outputs[index].declared
        dtype = self._compiled.plugin.types.dtype(self.view.graph, operand)
        if (relayout := self._compiled.layouts.get(operand)) is not None:
            declared = relayout.own_shape(declared)
        name, size = f"output {index} of a native backend's partition", prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or not fits(shape, declared):
            raise shape_error(name, shape, declared)
        check_size(name, shape, size, self._compiled.tensor_bytes)
        tensor: TensorStruct | NativeBuffer
        if operand in self._compiled.device_operands:
            tensor = self._compiled.plugin.memory.acquire(shape, dtype)
        else:
            tensor = TensorStruct(allocate_buffer(self._compiled.plugin.table, size).view(dtype).reshape(shape))
        self._tensors[index] = tensor
        return c.addressof(tensor.struct)

    def deliver(self) -> None:
        """Deliver the outputs.

        Raises:
            HalError: the plug-in did not deliver an output.
        """
        for index, output in enumerate(self._outputs):
            if index in self._delivered:
                continue
            tensor = self._tensors.get(index)
            if tensor is None:
                raise general_failure(f"the backend did not deliver output {index} of its partition")
            output.write(tensor.array if isinstance(tensor, TensorStruct) else tensor, keep=True)

    def deliver_buffers(self) -> None:
        """Deliver the buffers of a deferred execution, so that later partitions on the device can use them at once."""
        for index, tensor in self._tensors.items():
            if isinstance(tensor, NativeBuffer):
                self._outputs[index].write(tensor, keep=True)
                self._delivered.add(index)


class Callbacks:
    """Functions that a plug-in calls, created once for each backend. A number identifies the execution."""

    def __init__(self, can_defer: bool) -> None:
        self._live: dict[int, Execution] = {}
        self._numbers = itertools.count(1)
        live = self._live  # the functions must not refer to this object: the cycle would delay its release
        self._output = abi.OutputFunction(lambda context, *call: _output(live, context, *call))
        self._check = abi.CheckFunction(lambda context: _check(live, context))
        self._spans = (
            abi.SpanFunction(lambda context, name, *time: _span(live, context, name, None, *time)),
            abi.OperationSpanFunction(lambda context, *span: _span(live, context, *span)),
        )
        self._no_spans = abi.SpanFunction(), abi.OperationSpanFunction()
        self._defer = abi.DeferFunction()
        if can_defer:
            self._defer = abi.DeferFunction(lambda context, state: _defer(live, context, state))

    @contextmanager
    def register(self, execution: Execution) -> Iterator[int]:
        """Register an execution for the duration of the context and yield its number."""
        context = next(self._numbers)
        self._live[context] = execution
        try:
            yield context
        finally:
            del self._live[context]

    def struct(self, context: int, inputs: TensorList, outputs: int, pieces: Addresses) -> abi.Execution:
        """Return the struct that the plug-in gets."""
        profile = self._live[context].profile
        is_measured = profile is not None or _log.isEnabledFor(logging.DEBUG)
        span, operation_span = self._spans if is_measured else self._no_spans
        return abi.Execution(
            c.sizeof(abi.Execution),
            context,
            len(inputs.tensors),
            inputs.struct,
            outputs,
            self._output,
            self._check,
            span,
            pieces,
            operation_span,
            self._defer,
            0 if profile is None else profile.execution,
        )


def _output(live: Mapping[int, Execution], context: int, index: int, ndim: int, shape: Sequence[int]) -> int | None:
    execution = live.get(context)
    if execution is None:  # the plug-in calls after it has returned
        return None
    try:
        check_rank(ndim, f"output {index} of a native backend's partition")
        return execution.output(index, tuple(shape[i] for i in range(ndim)))
    except BaseException as error:
        execution.error = execution.error or error
        return None


def _check(live: Mapping[int, Execution], context: int) -> int:
    execution = live.get(context)
    if execution is None:
        return 1
    try:
        execution.check()
    except BaseException as error:
        execution.error = execution.error or error
        return 1
    return 0


def _defer(live: Mapping[int, Execution], context: int, state: int | None) -> int:
    execution = live.get(context)
    if execution is None or execution.deferred:
        return ErrorStatus.INVALID_ARGUMENT
    execution.deferred.append(state)
    return ErrorStatus.NONE


def _span(
    live: Mapping[int, Execution], context: int, name: bytes, operation: int | None, start_ns: int, duration_ns: int
) -> None:
    text = name.decode(errors="replace")
    execution = live.get(context)
    if execution is not None and execution.profile is not None:
        operations = execution.view.operations
        view = operations[operation] if operation is not None and operation < len(operations) else None
        execution.profile.span(text, start_ns, duration_ns, view)
    _log.debug("span execution=%d name=%s start_ns=%d us=%.1f", context, text, start_ns, duration_ns / 1e3)
