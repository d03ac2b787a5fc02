"""Backend that calls a native plug-in."""

import ctypes as c
import itertools
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from nnhal.errors import HalError, exception_text, general_failure
from nnhal.types import ErrorStatus, Extension, ExtensionOperandTypeInformation, PerformanceInfo
from nnhal_driver.backends.allocators import CustomAllocator, allocate_with
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    OptimizedSubgraph,
    Profile,
    ProfilingContext,
    Sections,
    SubgraphView,
    Support,
)
from nnhal_driver.backends.memory import MemoryMode
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.native.compiled import Callbacks, NativeSubgraph, Plugin
from nnhal_driver.backends.native.declarations import read_device_operands, read_layouts
from nnhal_driver.backends.native.device_memory import NativeMemory
from nnhal_driver.backends.native.library import FunctionTable, PluginError
from nnhal_driver.backends.native.marshalling import MAX_ELEMENT_BYTES, ExtensionTypes, SubgraphStruct
from nnhal_driver.backends.native.memory import PlannedMemory, allocator_struct
from nnhal_driver.backends.native.optimization import OptimizationCall, SubgraphPart

_log = logging.getLogger(__name__)


class NativeBackend(Backend):
    """A backend object of a native plug-in.

    Args:
        memory: LIMIT for all models, or NORMAL if each model's preference decides.

    Raises:
        PluginError: the plug-in lists an invalid operand type.
    """

    def __init__(self, id_: str, table: FunctionTable, memory: MemoryMode = MemoryMode.NORMAL) -> None:
        self.id = id_
        self.version = table.version
        self._open_table: FunctionTable | None = table
        self._callbacks = Callbacks(table.has("wait_deferred"))
        self._device_memory: NativeMemory | None = NativeMemory(table)
        self._networks = itertools.count(1)
        self._memory = memory
        self._types = ExtensionTypes(self.extensions())
        if table.has("device_type"):
            self.device_type = table.call("device_type")

    @property
    def _table(self) -> FunctionTable:
        if self._open_table is None:
            raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, f"backend {self.id} is closed")
        return self._open_table

    def supports(self, operation: OperationView) -> Support:
        """Ask the plug-in whether it supports an operation."""
        if fault := self._types.check(operation):
            return Support(fault)
        subgraph = SubgraphStruct.of_operation(operation, self._types)
        return Support(self._table.refusal("supports", c.byref(subgraph.struct)))

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Compile a subgraph with the plug-in."""
        return self._create("compile", subgraph, options)

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Load a saved subgraph with the plug-in."""
        return self._create("load", subgraph, options, sections.model, len(sections.model))

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Ask the plug-in for substitutions, and for operations that it cannot run after all."""
        if not self._table.has("optimize"):
            return OptimizedSubgraph()
        whole = SubgraphStruct(subgraph, self._types, options)
        call = OptimizationCall(subgraph, lambda operations: self._part(subgraph, operations, options))
        with _checked(options):
            return call.run(self._table, whole)

    def _part(self, whole: SubgraphView, operations: tuple[int, ...], options: CompileOptions) -> SubgraphPart:
        view = whole.part(operations)
        struct, memory = self._describe(view, options)

        def adopt(handle: int | None) -> CompiledSubgraph:
            network = next(self._networks)
            self._table.hook("before_load", network)
            return self._adopt(network, handle, struct, memory, view, options)

        return SubgraphPart(operations, struct, adopt)

    def _create(self, name: str, view: SubgraphView, options: CompileOptions, *saved: object) -> CompiledSubgraph:
        """Call `compile` or `load`, between before_load and after_load."""
        struct, memory = self._describe(view, options)
        network, handle = next(self._networks), c.c_void_p()
        self._table.hook("before_load", network)
        with _checked(options):
            self._table.run(name, c.byref(struct.struct), *saved, c.byref(handle))
        if not handle.value:
            raise general_failure(f"{name} returned status 0 and no compiled subgraph")
        return self._adopt(network, handle.value, struct, memory, view, options)

    def _describe(self, view: SubgraphView, options: CompileOptions) -> tuple[SubgraphStruct, PlannedMemory]:
        """Return a subgraph for the plug-in to compile, and the planner of its memory."""
        mode = MemoryMode.LIMIT if self._memory is MemoryMode.LIMIT else options.memory_mode
        memory = PlannedMemory(self._table, mode)
        return SubgraphStruct(view, self._types, options, memory.struct()), memory

    def _adopt(
        self,
        network: int,
        handle: int | None,
        struct: SubgraphStruct,
        memory: PlannedMemory,
        view: SubgraphView,
        options: CompileOptions,
    ) -> CompiledSubgraph:
        """Take ownership of a handle: the host releases it."""
        memory.planning = False
        if self._table.has("block_allocated"):
            table = self._table
            memory.manager.on_allocate = lambda block: table.hook(
                "block_allocated", handle, block.ctypes.data, block.size
            )
        device_memory = self._device_memory
        assert device_memory is not None, "the backend is open"
        plugin = Plugin(self._table, self._callbacks, self._types, device_memory, self.capabilities())
        compiled = NativeSubgraph(plugin, handle, struct, memory, view, options)
        weakref.finalize(compiled, _release, self._table, network, handle, struct).atexit = False
        compiled.layouts = read_layouts(self._table, handle, struct)
        compiled.device_operands = dict.fromkeys(read_device_operands(self._table, handle, struct), device_memory)
        self._table.hook("after_load", network, handle)
        return compiled

    def capabilities(self) -> Mapping[str, bool]:
        """Return the plug-in's capabilities."""
        return {item.name.decode(errors="replace"): bool(item.value) for item in self._table.items("capabilities")}

    def extensions(self) -> Sequence[Extension]:
        """Return the plug-in's extensions."""
        extensions = []
        for name in self._table.items("extensions"):
            text, types = name.decode(errors="replace"), []
            for item in self._table.items("operand_types", name):
                if not 1 <= (size := item.byte_size) <= MAX_ELEMENT_BYTES:
                    fault = f"operand type {item.type} of {text} has {size} bytes; expected 1 to {MAX_ELEMENT_BYTES}"
                    raise PluginError(fault)
                types.append(ExtensionOperandTypeInformation(item.type, bool(item.is_tensor), size))
            extensions.append(Extension(text, tuple(types)))
        return extensions

    def performance(self) -> PerformanceInfo:
        """Return the plug-in's performance."""
        time, power = c.c_float(1.0), c.c_float(1.0)
        self._table.hook("performance", c.byref(time), c.byref(power))
        return PerformanceInfo(time.value, power.value)

    def before_load_network(self, network: int) -> None:
        """Tell the plug-in."""
        self._table.hook("before_load_network", network)

    def after_load_network(self, network: int) -> None:
        """Tell the plug-in."""
        self._table.hook("after_load_network", network)

    def before_unload_network(self, network: int) -> None:
        """Tell the plug-in."""
        self._table.hook("before_unload_network", network)

    def after_unload_network(self, network: int) -> None:
        """Tell the plug-in."""
        self._table.hook("after_unload_network", network)

    def use_allocator(self, allocator: CustomAllocator) -> Support:
        """Offer the allocator to the plug-in."""
        if not self._table.has("use_allocator"):
            return Support("it has no use_allocator")
        struct = allocator_struct(allocator)
        self._table.borrowed.append(struct)
        refusal = self._table.refusal("use_allocator", c.byref(struct))
        if not refusal:
            self._table.allocate = allocate_with(allocator)
        return Support(refusal)

    def create_profiling_context(self) -> ProfilingContext | None:
        """Return a context if the plug-in has one of its functions."""
        has_one = self._table.has("profiling_begin") or self._table.has("profiling_end")
        return NativeProfilingContext(lambda: self._table) if has_one else None

    def close(self) -> None:
        """Drop the plug-in's object. It is destroyed when nothing that it compiled is in use any more."""
        self._open_table = self._device_memory = None

    def optional_hooks(self) -> Mapping[str, bool]:
        """Return which optional functions of the interface the plug-in has."""
        return {name: self._table.has(name) for name, _ in abi.OPTIONAL}


class NativeProfilingContext(ProfilingContext):
    """Passes profiled executions on to a plug-in. It does not keep the table, because the device keeps the context."""

    def __init__(self, table: Callable[[], FunctionTable]) -> None:
        self._table = table

    def begin(self, execution: int) -> None:
        """Tell the plug-in."""
        self._table().hook("profiling_begin", execution)

    def end(self, execution: int, profile: Profile) -> None:
        """Tell the plug-in, which may report spans."""
        if not self._table().has("profiling_end"):
            return

        def span(_: int, name: bytes, start_ns: int, duration_ns: int) -> None:
            try:
                profile.span(name.decode(errors="replace"), start_ns, duration_ns)
            except BaseException as error:  # it cannot pass through C
                _log.warning("a span of a native backend is lost: %s", exception_text(error))

        struct = abi.ProfileStruct(c.sizeof(abi.ProfileStruct), None, abi.SpanFunction(span))
        self._table().call("profiling_end", execution, c.byref(struct))


@contextmanager
def _checked(options: CompileOptions) -> Iterator[None]:
    """Raise the error of the options' check, if there is one, instead of that of the plug-in."""
    try:
        yield
    except HalError:
        options.check()
        raise


def _release(table: FunctionTable, network: int, handle: int | None, struct: SubgraphStruct) -> None:
    table.hook("before_unload", network, handle)
    table.call("release", handle)
    table.hook("after_unload", network)
    del struct  # the plug-in may read it until here
