"""A native plug-in as a Backend."""

import ctypes as c
import itertools
import weakref
from collections.abc import Mapping, Sequence

from driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    OptimizedSubgraph,
    Sections,
    SubgraphView,
    Support,
)
from driver.backends.native import abi
from driver.backends.native.compiled import Callbacks, NativeSubgraph, Plugin
from driver.backends.native.layouts import layouts
from driver.backends.native.library import PluginError, Table, text
from driver.backends.native.marshalling import SubgraphStruct
from driver.backends.native.memory import Pieces
from driver.backends.native.operand_types import MOST_BYTES, OperandTypes
from driver.backends.native.optimization import Answer, Part
from nnhal.types import Extension, ExtensionOperandTypeInformation, PerformanceInfo


class NativeBackend(Backend):
    """The functions of one object that a plug-in made.

    Args:
        digest: of the plug-in's file.

    Raises:
        PluginError: it lists an operand type that cannot be.
    """

    def __init__(self, id_: str, table: Table, digest: str) -> None:
        self.id = id_
        self.version = table.version
        self._table = table
        self._digest = digest
        self._callbacks = Callbacks()
        self._networks = itertools.count(1)
        self._types = OperandTypes(self.extensions())

    def supports(self, operation: OperationView) -> Support:
        """What the plug-in says."""
        if fault := self._types.fault(operation):
            return Support(fault)
        one = SubgraphStruct.of_operation(operation, self._types)
        reason = c.create_string_buffer(abi.REASON_BYTES)
        if self._table.call("supports", c.byref(one.struct), reason, abi.REASON_BYTES):
            return Support()
        return Support(text(reason) or "the backend says no, and no reason")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Has the plug-in compile it."""
        return self._made("compile", subgraph, options)

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Has the plug-in load what it saved."""
        return self._made("load", subgraph, options, sections.model, len(sections.model))

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """What the plug-in puts in place of operations, and which it refuses after all."""
        if not self._table.has("optimize"):
            return OptimizedSubgraph()
        whole = SubgraphStruct.of_view(subgraph, self._types, options.preference)
        return Answer(subgraph, lambda operations: self._part(subgraph, operations, options)).ask(self._table, whole)

    def _part(self, whole: SubgraphView, operations: tuple[int, ...], options: CompileOptions) -> Part:
        view = whole.part(operations)
        struct, pieces = self._described(view, options)

        def adopt(handle: int | None) -> CompiledSubgraph:
            network = next(self._networks)
            self._table.hook("before_load", network)
            return self._adopted(network, handle, struct, pieces, view, options)

        return Part(operations, struct, adopt)

    def _made(self, name: str, view: SubgraphView, options: CompileOptions, *saved: object) -> CompiledSubgraph:
        """Calls `compile` or `load`, between before_load and after_load."""
        struct, pieces = self._described(view, options)
        network, handle = next(self._networks), c.c_void_p()
        self._table.hook("before_load", network)
        self._table.run(name, c.byref(struct.struct), *saved, c.byref(handle))
        return self._adopted(network, handle.value, struct, pieces, view, options)

    def _described(self, view: SubgraphView, options: CompileOptions) -> tuple[SubgraphStruct, Pieces]:
        """A subgraph for the plug-in to compile, and the memory that it plans for it."""
        pieces = Pieces(self._table, options.memory_mode)
        return SubgraphStruct.of_view(view, self._types, options.preference, pieces.struct()), pieces

    def _adopted(
        self,
        network: int,
        handle: int | None,
        struct: SubgraphStruct,
        pieces: Pieces,
        view: SubgraphView,
        options: CompileOptions,
    ) -> CompiledSubgraph:
        """What the plug-in made is from now on the host's to release."""
        pieces.close()
        plugin = Plugin(self._table, self._callbacks, self._types, self.capabilities())
        compiled = NativeSubgraph(plugin, handle, struct, pieces, view, options)
        weakref.finalize(compiled, _release, self._table, network, handle, struct).atexit = False
        compiled.layouts = layouts(self._table, handle, struct, view)
        self._table.hook("after_load", network, handle)
        return compiled

    def fingerprint(self) -> str:
        """The plug-in's file: who builds it again need not think of a new version."""
        return self._digest

    def capabilities(self) -> Mapping[str, bool]:
        """What the plug-in says."""
        return {item.name.decode(errors="replace"): bool(item.value) for item in self._table.listed("capabilities")}

    def extensions(self) -> Sequence[Extension]:
        """What the plug-in says."""
        return [self._extension(name) for name in self._table.listed("extensions")]

    def _extension(self, name: bytes) -> Extension:
        text = name.decode(errors="replace")
        types = [(one.type, one.is_tensor, one.byte_size) for one in self._table.listed("operand_types", name)]
        for type_, _, size in types:
            if not 1 <= size <= MOST_BYTES:
                raise PluginError(f"operand type {type_} of {text} has {size} bytes; 1 to {MOST_BYTES} are possible")
        return Extension(text, tuple(ExtensionOperandTypeInformation(t, bool(n), size) for t, n, size in types))

    def performance(self) -> PerformanceInfo:
        """What the plug-in says."""
        time, power = c.c_float(1.0), c.c_float(1.0)
        self._table.hook("performance", c.byref(time), c.byref(power))
        return PerformanceInfo(time.value, power.value)

    def optional_hooks(self) -> Mapping[str, bool]:
        """The optional functions of the interface, and whether the plug-in has them."""
        return {name: self._table.has(name) for name, _ in abi.OPTIONAL}


def _release(table: Table, network: int, handle: int | None, struct: SubgraphStruct) -> None:
    table.hook("before_unload", network, handle)
    table.call("release", handle)
    table.hook("after_unload", network)
    del struct  # the plug-in may have read it until now
