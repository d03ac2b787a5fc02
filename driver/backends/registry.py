"""Which backends there are: factories by id. Only the factory is registered; a device makes its own objects.

Importing a package of `driver.backends` registers the backends in it. `driver.backends.dynamic` finds more of them;
`assemble` makes what a device asks for out of both, and reports what cannot be made.
"""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import driver.backends
from driver.backends.api import API_VERSION, Backend
from driver.backends.report import BUILT_IN, Report, State

Factory = Callable[[], Backend]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    """A backend that can be made. Immutable.

    Attributes:
        make: makes a new object; may raise anything.
        origin: BUILT_IN, or the file or package that it comes from.
        api_version: of the interface that it was made for.
    """

    id: str
    make: Factory
    origin: str = BUILT_IN
    api_version: tuple[int, int] = API_VERSION


@dataclass(frozen=True, slots=True)
class Found:
    """What a search for dynamic backends gave: what can be made, and reports of the other candidates."""

    registrations: tuple[Registration, ...] = ()
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembly:
    """Backends of one device, in its order; and a report of every candidate, those in use first."""

    backends: tuple[Backend, ...]
    reports: tuple[Report, ...]


_STATIC: dict[str, Registration] = {}
_NOTHING = Found()


def register(backend: type[Backend]) -> type[Backend]:
    """Class decorator: the backend can be made by its id.

    Raises:
        ValueError: the id is taken.
    """
    if backend.id in _STATIC:
        raise ValueError(f"backend id {backend.id!r} is taken")
    _STATIC[backend.id] = Registration(backend.id, backend)
    return backend


def ids() -> list[str]:
    """Ids of all registered backends, in alphabetical order."""
    _load()
    return sorted(_STATIC)


def create(wanted: Iterable[str]) -> list[Backend]:
    """Makes backends in the tree by their ids, in the given order. What a factory raises is passed on.

    Raises:
        ValueError: an id is not registered, or occurs twice.
    """
    _load()
    return [_STATIC[id_].make() for id_ in _checked(list(wanted), ids())]


def assemble(wanted: Sequence[str], found: Found = _NOTHING) -> Assembly:
    """Makes backends by their ids, in the given order, and reports those that cannot be made.

    Args:
        wanted: ids. One that nobody has is reported where a candidate failed: it may be that one's.
        found: dynamic backends.

    Raises:
        ValueError: an id is not registered, or occurs twice; or no backend is left.
    """
    _load()
    known = {one.id: one for one in (*_STATIC.values(), *found.registrations)}
    failed = {report.id for report in found.reports if report.state is State.FAILED}
    missing = [id_ for id_ in wanted if id_ not in known] if failed else []
    made: list[Backend] = []
    ready: list[Report] = []
    others: list[Report] = []
    for id_ in _checked(list(wanted), [*sorted(known), *missing]):
        if id_ not in known:
            others += [] if id_ in failed else [_absent(id_)]
            continue
        backend, report = _made(known[id_])
        if backend is None:
            others.append(report)
        else:
            made.append(backend)
            ready.append(report)
    reports = (*ready, *others, *_unused(found.registrations, wanted), *found.reports)
    if not made:
        raise ValueError("no backend can be used: " + "; ".join(f"{one.id}: {one.reason}" for one in reports))
    return Assembly(tuple(made), reports)


def _checked(wanted: list[str], known: Sequence[str]) -> list[str]:
    for id_ in wanted:
        if id_ not in known:
            raise ValueError(f"there is no backend {id_!r}; there are {', '.join(known)}")
        if wanted.count(id_) > 1:
            raise ValueError(f"backend {id_!r} is listed twice")
    return wanted


def _made(one: Registration) -> tuple[Backend | None, Report]:
    version = _text(one.api_version)
    try:
        backend = one.make()
        capabilities = dict(backend.capabilities())
    except Exception as error:
        reason = str(error) or type(error).__name__
        _log.warning("backend %s (%s) cannot be used: %s", one.id, one.origin, reason)
        return None, Report(one.id, State.FAILED, one.origin, reason, api_version=version)
    return backend, Report(one.id, State.READY, one.origin, "", backend.version, version, capabilities)


def _absent(id_: str) -> Report:
    reason = "no backend of this id was loaded; it may be one of those that failed"
    _log.warning("backend %s is asked for, and not there: %s", id_, reason)
    return Report(id_, State.FAILED, "", reason)


def _unused(found: Iterable[Registration], wanted: Sequence[str]) -> list[Report]:
    why = f"registered, not used: the device's backends are {', '.join(wanted)}; name it in --backends"
    return [
        Report(one.id, State.SKIPPED, one.origin, why, api_version=_text(one.api_version))
        for one in found
        if one.id not in wanted
    ]


def _text(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)


def _load() -> None:
    for module in pkgutil.iter_modules(driver.backends.__path__):
        if module.ispkg:
            importlib.import_module(f"driver.backends.{module.name}")
