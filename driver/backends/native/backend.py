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
    Sections,
    SubgraphView,
    Support,
)
from driver.backends.native import abi
from driver.backends.native.compiled import Callbacks, NativeSubgraph
from driver.backends.native.library import Table, text
from driver.backends.native.marshalling import SubgraphStruct
from nnhal.types import Extension, PerformanceInfo, is_extension


class NativeBackend(Backend):
    """The functions of one object that a plug-in made.

    Args:
        digest: of the plug-in's file.
    """

    def __init__(self, id_: str, table: Table, digest: str) -> None:
        self.id = id_
        self.version = table.version
        self._table = table
        self._digest = digest
        self._callbacks = Callbacks()
        self._networks = itertools.count(1)

    def supports(self, operation: OperationView) -> Support:
        """What the plug-in says."""
        used = (*operation.operation.inputs, *operation.operation.outputs)
        if any(is_extension(operation.graph.operands[o].type) for o in used):
            return Support("the C interface has no operand types of extensions")
        one = SubgraphStruct.of_operation(operation)
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

    def _made(self, name: str, view: SubgraphView, options: CompileOptions, *saved: object) -> CompiledSubgraph:
        """Calls `compile` or `load`, between before_load and after_load."""
        struct = SubgraphStruct.of_view(view, options.preference)
        network, handle = next(self._networks), c.c_void_p()
        self._table.hook("before_load", network)
        self._table.run(name, c.byref(struct.struct), *saved, c.byref(handle))
        compiled = NativeSubgraph(
            self._table, self._callbacks, handle.value, struct, view, options, self.capabilities()
        )
        # from here the plug-in releases it when nothing refers to it any more
        weakref.finalize(compiled, _release, self._table, network, handle.value, struct).atexit = False
        self._table.hook("after_load", network, handle)
        return compiled

    def fingerprint(self) -> str:
        """The plug-in's file: who builds it again need not think of a new version."""
        return self._digest

    def capabilities(self) -> Mapping[str, bool]:
        """What the plug-in says."""
        return {item.name.decode(errors="replace"): bool(item.value) for item in self._table.listed("capabilities")}

    def extensions(self) -> Sequence[Extension]:
        """What the plug-in says; without operand types of their own."""
        return [Extension(name.decode(errors="replace")) for name in self._table.listed("extensions")]

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
