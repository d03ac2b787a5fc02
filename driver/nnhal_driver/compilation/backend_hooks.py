"""Hooks of backends: the driver calls them, acquires memory, and serializes executions where a backend requires it.

Most backends have no hooks, and pay nothing for them.
"""

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext

from nnhal.types import AnyArray
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Output,
    Run,
    Sections,
    SubgraphView,
)
from nnhal_driver.backends.boundary.calls import call, call_here, notify
from nnhal_driver.backends.boundary.isolation import isolated
from nnhal_driver.backends.boundary.subgraphs import CheckedSubgraph
from nnhal_driver.backends.deferral import Wait, count_deferred, take_deferred, wait_for_all

_LOADING = ("before_load", "after_load", "before_unload", "after_unload")
_RESIZING = ("resize_begin", "resize", "resize_end")
_EXECUTING = ("execute_begin", "execute_end", "wait_finish")

_networks = itertools.count(1)
"""Numbers by which hooks tell networks apart. Devices may share a backend, so numbers are unique in the process."""


def with_hooks(
    backend: Backend, view: SubgraphView, options: CompileOptions, make: Callable[[], CompiledSubgraph]
) -> CompiledSubgraph:
    """Return the compiled subgraph that `make` returns, checked and with all hooks of the backend around it.

    Raises:
        HalError: what `make` raises, or a hook fails.
        MemoryError: there is not enough memory.
    """

    def create() -> CompiledSubgraph:
        return CheckedSubgraph(backend, view, _with_loading_hooks(backend, make), options)

    return isolated(backend, "compile", create)


def _with_loading_hooks(backend: Backend, make: Callable[[], CompiledSubgraph]) -> CompiledSubgraph:
    if not _overrides(backend, Backend, _LOADING):
        return _with_execution_hooks(backend, make())
    network = next(_networks)
    call(backend, "before_load", backend.before_load, network)
    with ExitStack() as undo:
        undo.callback(notify, backend, "after_unload", backend.after_unload, network)
        compiled = make()
        undo.callback(notify, backend, "before_unload", backend.before_unload, network, compiled)
        call(backend, "after_load", backend.after_load, network, compiled)
        undo.pop_all()
    hooked = _HookedSubgraph(backend, compiled)
    weakref.finalize(hooked, _unload, backend, network, [compiled]).atexit = False
    return hooked


def _with_execution_hooks(backend: Backend, compiled: CompiledSubgraph) -> CompiledSubgraph:
    if compiled.memory is None and not _overrides(compiled, CompiledSubgraph, (*_RESIZING, *_EXECUTING)):
        return compiled
    return _HookedSubgraph(backend, compiled)


def _overrides(instance: object, base: type, names: Sequence[str]) -> bool:
    """Return whether the class of an object overrides any of some hooks."""
    return any(getattr(type(instance), name) is not getattr(base, name) for name in names)


def _unload(backend: Backend, network: int, compiled: list[CompiledSubgraph]) -> None:
    notify(backend, "before_unload", backend.before_unload, network, compiled[0])
    compiled.clear()  # the last reference, unless the backend has one
    notify(backend, "after_unload", backend.after_unload, network)


def _finish(waits: list[Wait], ends: ExitStack) -> None:
    """End a deferred execution."""
    with ends:
        wait_for_all(waits)


class _HookedSubgraph(CompiledSubgraph):
    """Compiled subgraph with its hooks around each execution."""

    def __init__(self, backend: Backend, compiled: CompiledSubgraph) -> None:
        self.compiled = compiled
        self._backend = backend
        self.layouts = compiled.layouts
        self.device_operands = compiled.device_operands
        self.copies_inputs = compiled.copies_inputs
        self._resizes = _overrides(compiled, CompiledSubgraph, _RESIZING)
        self._lock = threading.Lock() if self._resizes or compiled.memory is not None else None
        self._shapes: list[tuple[int, ...] | None] | None = None

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Run the subgraph between its hooks."""
        backend, compiled = self._backend, self.compiled
        with ExitStack() as after:
            after.enter_context(self._lock or nullcontext())
            run.check()
            if self._resizes:
                self._resize([None if array is None else array.shape for array in inputs], run)
            if compiled.memory is not None:
                call_here(backend, "memory.acquire", run.check, compiled.memory.acquire)
                after.callback(call_here, backend, "memory.release", run.check, compiled.memory.release)
            call_here(backend, "execute_begin", run.check, compiled.execute_begin)
            after.callback(call_here, backend, "execute_end", run.check, compiled.execute_end)
            earlier = count_deferred(run)
            try:
                compiled.execute(inputs, outputs, run)
            finally:
                waits = take_deferred(run, earlier)
                if waits:
                    ends = after.pop_all()
                    run.defer(lambda: _finish(waits, ends))
            if not waits:
                call_here(backend, "wait_finish", run.check, compiled.wait_finish)

    def save(self) -> Sections | None:
        """Return the data that the compiled subgraph saves."""
        return self.compiled.save()

    def _resize(self, shapes: list[tuple[int, ...] | None], run: Run) -> None:
        if shapes == self._shapes:
            return
        self._shapes = None
        backend, compiled = self._backend, self.compiled
        call_here(backend, "resize_begin", run.check, compiled.resize_begin)
        try:
            call_here(backend, "resize", run.check, compiled.resize, shapes)
        finally:
            call_here(backend, "resize_end", run.check, compiled.resize_end)
        self._shapes = shapes
