"""Which backends there are: factories by id. Only the factory is registered; a device makes its own objects.

Importing a package of `driver.backends` registers the backends in it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable

import driver.backends
from driver.backends.api import Backend

Factory = Callable[[], Backend]

_FACTORIES: dict[str, Factory] = {}


def register(backend: type[Backend]) -> type[Backend]:
    """Class decorator: the backend can be made by its id.

    Raises:
        ValueError: the id is taken.
    """
    if backend.id in _FACTORIES:
        raise ValueError(f"backend id {backend.id!r} is taken")
    _FACTORIES[backend.id] = backend
    return backend


def ids() -> list[str]:
    """Ids of all registered backends, in alphabetical order."""
    _load()
    return sorted(_FACTORIES)


def create(wanted: Iterable[str]) -> list[Backend]:
    """Makes backends by their ids, in the given order.

    Raises:
        ValueError: an id is not registered, or occurs twice.
    """
    _load()
    wanted = list(wanted)
    for id_ in wanted:
        if id_ not in _FACTORIES:
            raise ValueError(f"there is no backend {id_!r}; there are {', '.join(ids())}")
        if wanted.count(id_) > 1:
            raise ValueError(f"backend {id_!r} is listed twice")
    return [_FACTORIES[id_]() for id_ in wanted]


def _load() -> None:
    for module in pkgutil.iter_modules(driver.backends.__path__):
        if module.ispkg:
            importlib.import_module(f"driver.backends.{module.name}")
