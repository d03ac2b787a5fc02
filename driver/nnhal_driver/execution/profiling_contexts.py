"""Profiling contexts of the backends of one device. They are told of each profiled execution, whatever starts it."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnhal_driver.backends.api import Backend, ProfilingContext
from nnhal_driver.backends.boundary.calls import call_or, describe, invalid_answer, notify
from nnhal_driver.execution.profiling import PartitionProfile, SpanRecorder

_numbers = itertools.count(1)
"""Numbers of profiled executions. Devices may share a backend, so they are unique in the process."""


class ProfilingContexts:
    """Contexts of the backends. Thread safe. Each backend creates its own before the first profiled execution.

    Attributes:
        backends: all backends of the device.
    """

    def __init__(self, backends: Sequence[Backend] = ()) -> None:
        self.backends = backends
        self._lock = threading.Lock()
        self._contexts: list[tuple[Backend, ProfilingContext]] | None = None

    @contextmanager
    def execution(self, spans: SpanRecorder) -> Iterator[None]:
        """Tell the contexts of the begin and the end of an execution, even if it fails.

        The recorder gets the number of the execution, and what the contexts report at the end. Errors of a context are
        logged, and do not affect the execution.
        """
        number = spans.execution = next(_numbers)
        contexts = self._created()
        for backend, context in contexts:
            notify(backend, "ProfilingContext.begin", context.begin, number)
        try:
            yield
        finally:
            for backend, context in contexts:
                profile = PartitionProfile(spans, backend.id, 0, ())
                notify(backend, "ProfilingContext.end", context.end, number, profile)

    def _created(self) -> list[tuple[Backend, ProfilingContext]]:
        with self._lock:
            if self._contexts is None:
                pairs = [(backend, _create(backend)) for backend in self.backends]
                self._contexts = [(backend, context) for backend, context in pairs if context is not None]
            return self._contexts


def _create(backend: Backend) -> ProfilingContext | None:
    """Return the context of a backend; None if it has none, or cannot create it."""
    context: object = call_or(backend, "create_profiling_context", backend.create_profiling_context, None)
    if context is None or isinstance(context, ProfilingContext):
        return context
    fault = f"returned {describe(context)}; expected a ProfilingContext or None"
    invalid_answer(backend, "create_profiling_context", fault)
    return None
