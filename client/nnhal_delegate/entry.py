"""Start of the package: called once by the library, when its first delegate is created."""

import atexit
from collections.abc import Callable
from typing import Any

from nnhal_delegate.functions import FUNCTIONS, close_delegates

_started: list[tuple[Callable[..., Any], ...]] = []


def start(finish: Callable[[], None], owns_interpreter: int) -> tuple[Callable[..., Any], ...]:
    """Return the functions of the library, in the order of functions.h, and the one that shuts it down.

    Args:
        finish: tells the library that it must not call the interpreter any more.
        owns_interpreter: whether the library has started the interpreter, and shuts it down when the process exits.
    """

    def shut_down() -> None:
        finish()
        close_delegates()

    if not _started:
        if not owns_interpreter:
            atexit.register(shut_down)
        _started.append((*FUNCTIONS, close_delegates))
    return _started[0]
