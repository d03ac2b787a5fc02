"""A subgraph that a native plug-in compiled, and its executions.

The plug-in calls back for the memory of outputs, to learn whether to go on, and to tell spans. Errors that arise there
cannot pass through C: they are kept, and raised when the plug-in has returned.
"""

import ctypes as c
import itertools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import prod

from driver.backends.api import CompiledSubgraph, CompileOptions, OperationView, Output, Run, Sections, SubgraphView
from driver.backends.layout import Relayout
from driver.backends.native import abi
from driver.backends.native.library import Table
from driver.backends.native.marshalling import SubgraphStruct, TensorList, TensorOver, dense
from driver.backends.native.memory import Addresses, Pieces, allocated
from driver.backends.native.operand_types import OperandTypes
from driver.graph import hold_rank
from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorKind, ErrorStatus

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Plugin:
    """What the compiled subgraphs of one backend object share."""

    table: Table
    callbacks: "Callbacks"
    types: OperandTypes
    capabilities: Mapping[str, bool]


class NativeSubgraph(CompiledSubgraph):
    """A compiled subgraph of a plug-in.

    Args:
        handle: the plug-in's own name for it.
        struct: what it was compiled from; the plug-in may read it at any time.
        pieces: the memory that it has planned.
    """

    def __init__(
        self,
        plugin: Plugin,
        handle: int | None,
        struct: SubgraphStruct,
        pieces: Pieces,
        view: SubgraphView,
        options: CompileOptions,
    ) -> None:
        can = plugin.capabilities
        self.copies_inputs = can.get("CopiesInputs", False)
        self.pieces = pieces
        self._plugin = plugin
        self._table = plugin.table
        self._handle = handle
        self._struct = struct
        self._view = view
        self._tensor_bytes = options.tensor_bytes
        self._strided = can.get("StridedInputs", False)
        self._resizes = not can.get("ConcurrentExecution", False)
        self._turn = threading.Lock() if self._resizes or pieces else None
        self._shapes: list[tuple[int, ...] | None] | None = None

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Runs it, one execution at a time unless the plug-in can do more."""
        tensors = TensorList(self._seen(inputs))
        execution = Execution(self._plugin, self._view, self.layouts, outputs, run, self._tensor_bytes)
        with self._turn or nullcontext():
            run.check()
            self._resize(inputs, tensors)
            serving = self._plugin.callbacks.serving(execution)
            with self.pieces.held() as addresses, self._executing(), serving as context:
                self._run(tensors, execution, context, addresses)
        execution.deliver()

    def _seen(self, inputs: Sequence[AnyArray | None]) -> Iterator[AnyArray | None]:
        """The inputs as the plug-in wants them."""
        for operand, array in zip(self._view.inputs, inputs, strict=True):
            seen = None if array is None else self._plugin.types.seen(self._view.graph, operand, array)
            yield seen if seen is None or self._strided else dense(seen)

    def save(self) -> Sections | None:
        """What the plug-in writes; None where it cannot save."""
        if not self._table.has("save"):
            return None
        saved = bytearray()

        def write(context: int, data: int, size: int) -> int:
            saved.extend(c.string_at(data, size))
            return ErrorStatus.NONE

        sink = abi.Sink(c.sizeof(abi.Sink), None, abi.WriteFunction(write))
        self._table.run("save", self._handle, c.byref(sink))
        return Sections(bytes(saved))

    def _run(self, tensors: TensorList, execution: "Execution", context: int, addresses: Addresses) -> None:
        struct = self._plugin.callbacks.struct(context, tensors, len(self._view.outputs), addresses)
        try:
            self._table.run("execute", self._handle, c.byref(struct))
            if self._table.has("wait_finish"):
                self._table.run("wait_finish", self._handle)
        except HalError:
            if execution.error is None:
                raise
        if execution.error is not None:
            raise execution.error

    def _resize(self, given: Sequence[AnyArray | None], tensors: TensorList) -> None:
        if not self._resizes:
            return
        shapes = [None if array is None else array.shape for array in given]
        if shapes == self._shapes:
            return
        self._shapes = None  # also when it fails: the next execution resizes again
        self._table.hook("resize_begin", self._handle)
        try:
            if self._table.has("resize"):
                with self.pieces.planning():
                    self._table.run("resize", self._handle, len(given), tensors.struct)
        finally:
            self._table.hook("resize_end", self._handle)
        self._shapes = shapes

    @contextmanager
    def _executing(self) -> Iterator[None]:
        self._table.hook("execute_begin", self._handle)
        try:
            yield
        finally:
            self._table.hook("execute_end", self._handle)


class Execution:
    """One execution, as the callbacks see it.

    Attributes:
        error: what a callback could not raise.
        profile: where spans go; None when nobody listens.
    """

    def __init__(
        self,
        plugin: Plugin,
        view: SubgraphView,
        layouts: Mapping[int, Relayout],
        outputs: Sequence[Output],
        run: Run,
        tensor_bytes: int,
    ) -> None:
        self.error: BaseException | None = None
        self.profile = run.profile
        self._plugin = plugin
        self._view = view
        self._layouts = layouts
        self._outputs = outputs
        self._run = run
        self._tensor_bytes = tensor_bytes
        self._made: dict[int, TensorOver] = {}

    def output(self, index: int, shape: tuple[int, ...]) -> int:
        """Address of the tensor for an output."""
        if index >= len(self._outputs):
            raise general_failure(f"the backend asked for output {index} of {len(self._outputs)}")
        if index in self._made:
            raise general_failure(f"the backend asked for output {index} twice")
        dtype = self._plugin.types.dtype(self._view.graph, self._view.outputs[index])
        self._judge(index, shape, dtype.itemsize)
        array = allocated(self._plugin.table, prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
        self._made[index] = tensor = TensorOver(array)
        return c.addressof(tensor.struct)

    def check(self) -> None:
        """Whether to go on."""
        self._run.check()

    def operation(self, place: int) -> OperationView | None:
        """An operation by its place in the struct; None where there is none."""
        return self._view.operations[place] if place < len(self._view.operations) else None

    def deliver(self) -> None:
        """Hands the outputs on.

        Raises:
            HalError: the plug-in left one out.
        """
        for index, output in enumerate(self._outputs):
            if index not in self._made:
                raise general_failure(f"the backend did not deliver output {index} of its partition")
            output.write(self._made[index].array, keep=True)

    def _judge(self, index: int, shape: tuple[int, ...], itemsize: int) -> None:
        place = f"output {index} of a native backend's partition"
        hold_rank(len(shape), place)
        declared = self._outputs[index].declared
        if (relayout := self._layouts.get(self._view.outputs[index])) is not None:
            declared = relayout.own_shape(declared)
        fits = len(declared) == len(shape) and all(d in (0, s) for d, s in zip(declared, shape, strict=True))
        if min(shape, default=0) < 0 or (declared and not fits):
            raise general_failure(f"{place} has shape {list(shape)}, declared {list(declared)}", "V-RUN-04")
        size = itemsize
        for dimension in shape:
            size *= dimension
        if size > self._tensor_bytes:
            raise HalError(
                ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
                f"{place} has shape {list(shape)}, {size} bytes; at most {self._tensor_bytes} (limit tensor_bytes)",
                kind=ErrorKind.LIMIT,
                limit="tensor_bytes",
            )


class Callbacks:
    """The functions that a plug-in calls, made once for each backend; executions are told apart by a number."""

    def __init__(self) -> None:
        self._live: dict[int, Execution] = {}
        self._numbers = itertools.count(1)
        live = self._live  # the functions must not refer to this object: nothing would ever free the circle at once
        self._output = abi.OutputFunction(lambda context, *call: _output(live, context, *call))
        self._check = abi.CheckFunction(lambda context: _check(live, context))
        self._span = abi.SpanFunction(lambda context, name, *time: _span(live, context, name, None, *time))
        self._operation_span = abi.OperationSpanFunction(lambda context, *span: _span(live, context, *span))
        self._no_span = abi.SpanFunction()
        self._no_operation_span = abi.OperationSpanFunction()

    @contextmanager
    def serving(self, execution: Execution) -> Iterator[int]:
        """Makes an execution known by a number for as long as it runs."""
        context = next(self._numbers)
        self._live[context] = execution
        try:
            yield context
        finally:
            del self._live[context]

    def struct(self, context: int, inputs: TensorList, outputs: int, pieces: Addresses) -> abi.Execution:
        """What the plug-in gets."""
        wanted = self._live[context].profile is not None or _log.isEnabledFor(logging.DEBUG)
        return abi.Execution(
            c.sizeof(abi.Execution),
            context,
            len(inputs.tensors),
            inputs.struct,
            outputs,
            self._output,
            self._check,
            self._span if wanted else self._no_span,
            pieces,
            self._operation_span if wanted else self._no_operation_span,
        )


def _output(live: Mapping[int, Execution], context: int, index: int, ndim: int, shape: Sequence[int]) -> int | None:
    execution = live.get(context)
    if execution is None:  # a plug-in that calls after it has returned
        return None
    try:
        hold_rank(ndim, f"output {index} of a native backend's partition")
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


def _span(
    live: Mapping[int, Execution], context: int, name: bytes, operation: int | None, start_ns: int, duration_ns: int
) -> None:
    text = name.decode(errors="replace")
    execution = live.get(context)
    if execution is not None and execution.profile is not None:
        view = None if operation is None else execution.operation(operation)
        execution.profile.span(text, start_ns, duration_ns, view)
    _log.debug("span execution=%d name=%s start_ns=%d us=%.1f", context, text, start_ns, duration_ns / 1e3)
