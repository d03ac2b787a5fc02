"""Hooks of backends: the driver calls them, acquires memory, and serializes executions where a backend requires it.

Most backends have no hooks. What they compile is then used directly, at no cost.
"""

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext

from nnhal.types import AnyArray
from nnhal_driver.backends.api import Backend, CompiledSubgraph, Output, Run, Sections

_LOADING = ("before_load", "after_load", "before_unload", "after_unload")
_RESIZING = ("resize_begin", "resize", "resize_end")
_EXECUTING = ("execute_begin", "execute_end", "wait_finish")

_networks = itertools.count(1)
"""Numbers by which hooks tell networks apart. Devices may share a backend, so numbers are unique in the process."""

_log = logging.getLogger(__name__)


def with_hooks(backend: Backend, make: Callable[[], CompiledSubgraph]) -> CompiledSubgraph:
    """Return the compiled subgraph that `make` returns, with all hooks of the backend around it.

    Args:
        backend: the backend.
        make: calls its `compile` or `load`.

    Raises:
        whatever `make` or a hook raises.
    """
    if not _overrides(backend, Backend, _LOADING):
        return _with_execution_hooks(make())
    network = next(_networks)
    backend.before_load(network)
    with ExitStack() as undo:
        undo.callback(_call_hook, backend, "after_unload", network)
        compiled = make()
        undo.callback(_call_hook, backend, "before_unload", network, compiled)
        backend.after_load(network, compiled)
        undo.pop_all()
    hooked = _HookedSubgraph(compiled)
    weakref.finalize(hooked, _unload, backend, network, [compiled]).atexit = False
    return hooked


def _with_execution_hooks(compiled: CompiledSubgraph) -> CompiledSubgraph:
    if compiled.memory is None and not _overrides(compiled, CompiledSubgraph, (*_RESIZING, *_EXECUTING)):
        return compiled
    return _HookedSubgraph(compiled)


def _overrides(instance: object, base: type, names: Sequence[str]) -> bool:
    """Return whether the class of an object overrides any of some hooks."""
    return any(getattr(type(instance), name) is not getattr(base, name) for name in names)


def _unload(backend: Backend, network: int, compiled: list[CompiledSubgraph]) -> None:
    _call_hook(backend, "before_unload", network, compiled[0])
    compiled.clear()  # the last reference, unless the backend has one
    _call_hook(backend, "after_unload", network)


def _call_hook(backend: Backend, name: str, *arguments: object) -> None:
    """Call a hook whose failure must not stop the others."""
    try:
        getattr(backend, name)(*arguments)
    except Exception:
        _log.exception("backend %s failed in %s", backend.id, name)


class _HookedSubgraph(CompiledSubgraph):
    """Compiled subgraph with its hooks around each execution."""

    def __init__(self, compiled: CompiledSubgraph) -> None:
        self._compiled = compiled
        self.layouts = compiled.layouts
        self.copies_inputs = compiled.copies_inputs
        self._resizes = _overrides(compiled, CompiledSubgraph, _RESIZING)
        self._lock = threading.Lock() if self._resizes or compiled.memory is not None else None
        self._shapes: list[tuple[int, ...] | None] | None = None

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Run the subgraph between its hooks."""
        compiled = self._compiled
        with ExitStack() as after:
            after.enter_context(self._lock or nullcontext())
            run.check()
            if self._resizes:
                self._resize([None if array is None else array.shape for array in inputs])
            if compiled.memory is not None:
                compiled.memory.acquire()
                after.callback(compiled.memory.release)
            compiled.execute_begin()
            after.callback(compiled.execute_end)
            compiled.execute(inputs, outputs, run)
            compiled.wait_finish()

    def save(self) -> Sections | None:
        """Return the data that the compiled subgraph saves."""
        return self._compiled.save()

    def _resize(self, shapes: list[tuple[int, ...] | None]) -> None:
        if shapes == self._shapes:
            return
        self._shapes = None
        self._compiled.resize_begin()
        try:
            self._compiled.resize(shapes)
        finally:
            self._compiled.resize_end()
        self._shapes = shapes
