"""What the host does around the code of a backend: hooks, memory, and one execution at a time where that is needed.

Most backends have no hooks; what they compile is used as it is, and costs nothing.
"""

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext

from driver.backends.api import Backend, CompiledSubgraph, Output, Run, Sections
from nnhal.types import AnyArray

_LOADING = ("before_load", "after_load", "before_unload", "after_unload")
_RESIZING = ("resize_begin", "resize", "resize_end")
_EXECUTING = ("execute_begin", "execute_end", "wait_finish")

_networks = itertools.count(1)
_log = logging.getLogger(__name__)


def hosted(backend: Backend, make: Callable[[], CompiledSubgraph]) -> CompiledSubgraph:
    """What `make` (`compile` or `load`) gives, with all hooks of the backend around it.

    Raises:
        whatever `make` or a hook raises.
    """
    if not _has(backend, Backend, _LOADING):
        return _guarded(make())
    network = next(_networks)
    backend.before_load(network)
    with ExitStack() as undo:
        undo.callback(_hook, backend, "after_unload", network)
        compiled = make()
        undo.callback(_hook, backend, "before_unload", network, compiled)
        backend.after_load(network, compiled)
        undo.pop_all()
    made = _Hosted(compiled)
    weakref.finalize(made, _unload, backend, network, [compiled]).atexit = False
    return made


def _guarded(compiled: CompiledSubgraph) -> CompiledSubgraph:
    if compiled.memory is None and not _has(compiled, CompiledSubgraph, (*_RESIZING, *_EXECUTING)):
        return compiled
    return _Hosted(compiled)


def _has(one: object, base: type, names: Sequence[str]) -> bool:
    """Whether an object has any of some hooks of its own."""
    return any(getattr(type(one), name) is not getattr(base, name) for name in names)


def _unload(backend: Backend, network: int, compiled: list[CompiledSubgraph]) -> None:
    _hook(backend, "before_unload", network, compiled[0])
    compiled.clear()  # the last reference, if the backend has none
    _hook(backend, "after_unload", network)


def _hook(backend: Backend, name: str, *arguments: object) -> None:
    """Calls a hook that must not stop the others."""
    try:
        getattr(backend, name)(*arguments)
    except Exception:
        _log.exception("backend %s failed in %s", backend.id, name)


class _Hosted(CompiledSubgraph):
    """A compiled subgraph whose hooks are called."""

    def __init__(self, compiled: CompiledSubgraph) -> None:
        self._compiled = compiled
        self.layouts = compiled.layouts
        self.copies_inputs = compiled.copies_inputs
        self._resizes = _has(compiled, CompiledSubgraph, _RESIZING)
        self._turn = threading.Lock() if self._resizes or compiled.memory is not None else None
        self._shapes: list[tuple[int, ...] | None] | None = None

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Runs it between its hooks."""
        compiled = self._compiled
        with ExitStack() as after:
            after.enter_context(self._turn or nullcontext())
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
        """What it saves."""
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
