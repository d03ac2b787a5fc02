"""Start of the package: called once by the C library, when its first function is called."""

import atexit
import os
from collections.abc import Callable
from typing import Any

from nnhal_ndk import functions
from nnhal_ndk.api.c_code import PYTHON_FUNCTIONS
from nnhal_ndk.devices import close_devices, forget_devices
from nnhal_ndk.results import configure_log

_started: list[tuple[Callable[..., Any], ...]] = []


def start(finish: Callable[[], None], owns_interpreter: int) -> tuple[Callable[..., Any], ...]:
    """Return the functions of the library, in the order of functions.h, and the one that shuts it down.

    Args:
        finish: tells the library that it must not call the interpreter any more.
        owns_interpreter: whether the library has started the interpreter, and shuts it down when the process exits.
    """
    if not _started:
        configure_log()
        os.register_at_fork(after_in_child=forget_devices)
        if not owns_interpreter:
            atexit.register(_shut_down, finish)
        _started.append((*(functions.REGISTERED[each.name] for each in PYTHON_FUNCTIONS), close_devices))
    return _started[0]


def _shut_down(finish: Callable[[], None]) -> None:
    finish()
    close_devices()
