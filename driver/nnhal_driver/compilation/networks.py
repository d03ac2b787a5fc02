"""Networks: prepared models, as backends see them. Every backend of a device is told when one is loaded or unloaded."""

import itertools
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from nnhal_driver.backends import lifetime
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.calls import notify
from nnhal_driver.execution.plan import Plan

_numbers = itertools.count(1)
"""Numbers of networks. Devices may share a backend, so they are unique in the process."""


class NetworkLoad:
    """Load of one network, whose number is never reused. Use it as a context manager.

    The hooks before the load run on entry, and those after it in `loaded`. Without `loaded`, the load has failed, and
    the exit calls the last hook. Errors of hooks are logged: another backend may run the whole model.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.number = next(_numbers)
        self._backends = backends
        self._is_loaded = False

    def loaded(self, plan: Plan) -> None:
        """Tell the backends that the network is loaded. It is unloaded when nothing uses the plan any more."""
        self._is_loaded = True
        # the contents of the plan, which end between the last two hooks
        weakref.finalize(plan, self._unload, vars(plan)).atexit = False
        self._call("after_load_network")

    def __enter__(self) -> "NetworkLoad":
        lifetime.acquire(self._backends)
        self._call("before_load_network")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._is_loaded:
            self._call("after_unload_network")
            lifetime.release(self._backends)

    def _unload(self, contents: dict[str, Any]) -> None:
        self._call("before_unload_network")
        contents.clear()
        self._call("after_unload_network")
        lifetime.release(self._backends)

    def _call(self, hook: str) -> None:
        for backend in self._backends:
            notify(backend, hook, getattr(backend, hook), self.number)
