"""Built-in vectors: hand-written models whose outputs are computed with numpy alone, not by a driver.

They make the harness useful without vector files. `cases` returns them all, in order.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from nnhal_tools.conformance.vectors.case import Case

FACTORIES: list[Callable[[], Case]] = []


def register(factory: Callable[[], Case]) -> Callable[[], Case]:
    """Register a function that creates a vector."""
    FACTORIES.append(factory)
    return factory


@cache
def cases() -> tuple[Case, ...]:
    """Return all built-in vectors."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return tuple(factory() for factory in FACTORIES)
