"""Lifetime of backends. The host counts its uses of each backend, and closes it after the last one.

A service uses a backend while it starts, a device until it is closed, and a network until it is unloaded. A model may
outlive its device, because a program can hold it any time.
"""

import threading
import weakref
from collections.abc import Iterable

from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.calls import notify
from nnhal_driver.backends.boundary.isolation import end_threads

_lock = threading.RLock()  # the garbage collector may release the backends of a model in the middle of `acquire`
_uses: dict[int, int] = {}
"""Number of uses by the address of a backend: its class may define equality without a hash."""


def acquire(backends: Iterable[Backend]) -> None:
    """Add a use of each backend."""
    for backend in backends:
        with _lock:
            if id(backend) not in _uses:
                _uses[id(backend)] = 0
                weakref.finalize(backend, _uses.pop, id(backend), None).atexit = False
            _uses[id(backend)] += 1


def release(backends: Iterable[Backend]) -> None:
    """Remove a use of each backend, and close those without another. Errors of backends are logged."""
    for backend in backends:
        with _lock:
            _uses[id(backend)] -= 1
            is_last = not _uses[id(backend)]
        if is_last:
            close(backend)


def close(backend: Backend) -> None:
    """Close a backend that nothing uses. Its errors are logged."""
    notify(backend, "close", backend.close)
    end_threads(backend)
