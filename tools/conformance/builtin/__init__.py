"""The project's own vectors: hand-made models whose outputs are worked out with numpy alone, by no driver.

They make the harness useful without vector files. `cases` gives them all, in order.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from tools.conformance.vectors import Case

MAKERS: list[Callable[[], Case]] = []


def builtin(maker: Callable[[], Case]) -> Callable[[], Case]:
    """Registers a function that makes a vector."""
    MAKERS.append(maker)
    return maker


@cache
def cases() -> tuple[Case, ...]:
    """Every built-in vector."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return tuple(maker() for maker in MAKERS)
