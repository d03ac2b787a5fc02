"""Registry of backends: factories by id. Each device creates its own objects.

Importing a package of `nnhal_driver.backends` registers its backends. `nnhal_driver.backends.plugins.search` finds
dynamic ones. `assemble` creates those that a device asks for, and reports those that cannot be created.
"""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import nnhal_driver.backends
from nnhal.errors import exception_text
from nnhal_driver.backends import lifetime
from nnhal_driver.backends.api import API_VERSION, Backend
from nnhal_driver.backends.boundary.answers import capabilities, hardware, identity_fault
from nnhal_driver.backends.identity import full_version, set_identity
from nnhal_driver.backends.options import (
    BackendOptions,
    OptionError,
    OptionValues,
    call_factory,
    checked_creation,
    identity_with_options,
)
from nnhal_driver.backends.report import BUILT_IN, CandidateState, Report
from nnhal_driver.interrupts import is_interrupt

B = TypeVar("B", bound=Backend)

Factory = Callable[[OptionValues], Backend]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered backend.

    Attributes:
        create: creates a new object with its options among those of all backends; may raise any exception.
        origin: BUILT_IN, or the file or package that it comes from.
        api_version: version of the interface that it was written for, "major.minor".
    """

    id: str
    create: Factory
    origin: str = BUILT_IN
    api_version: str = "{}.{}".format(*API_VERSION)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search for dynamic backends: usable backends, and reports of the other candidates."""

    registrations: tuple[Registration, ...] = ()
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembly:
    """Backends of one device, in its order, and a report of every candidate. Those in use come first.

    Close it once a device has its backends, or if none is created after all.
    """

    backends: tuple[Backend, ...]
    reports: tuple[Report, ...]

    def close(self) -> None:
        """Close the backends that no device uses."""
        lifetime.release(self.backends)


_BUILT_IN: dict[str, Registration] = {}
_ENGINES: set[Callable[[], object]] = set()
REPLACED: dict[str, str] = {}
"""Advice on backends that existed, by id."""
_NO_PLUGINS = SearchResult()
_NO_OPTIONS: OptionValues = {}


def register(backend: type[B], import_engine: Callable[[], object] | None = None) -> type[B]:
    """Register a built-in backend under its id (class decorator).

    Args:
        backend: its class.
        import_engine: imports the packages that it needs, which takes long.

    Raises:
        ValueError: the id is already registered.
    """
    if backend.id in _BUILT_IN:
        raise ValueError(f"backend id {backend.id!r} is already registered")

    def create_backend(values: OptionValues) -> Backend:
        options = BackendOptions(values.get(backend.id, {}))
        created = checked_creation(backend.id, lambda: call_factory(backend, options), options)
        set_identity(created, identity_with_options("", options))
        return created

    _BUILT_IN[backend.id] = Registration(backend.id, create_backend)
    if import_engine is not None:
        _ENGINES.add(import_engine)
    return backend


def import_engines() -> None:
    """Import the packages that built-in backends need, as far as they are installed."""
    _import_packages()
    for import_engine in _ENGINES:
        with suppress(ImportError):  # the device that wants the backend reports it
            import_engine()


def registered_ids() -> list[str]:
    """Return the ids of all built-in backends, sorted."""
    _import_packages()
    return sorted(_BUILT_IN)


def create(ids: Iterable[str]) -> list[Backend]:
    """Create built-in backends by their ids, in this order. Exceptions of factories propagate.

    Raises:
        ValueError: an id is not registered, or occurs twice.
    """
    return [_BUILT_IN[id_].create({}) for id_ in _check_ids(list(ids), registered_ids())]


def assemble(ids: Sequence[str], plugins: SearchResult = _NO_PLUGINS, options: OptionValues = _NO_OPTIONS) -> Assembly:
    """Create backends by their ids, in this order, and report those that cannot be created.

    Args:
        ids: if a candidate failed, an unknown id may be its id, so it is only reported.
        plugins: dynamic backends.
        options: options of the backends.

    Raises:
        ValueError: an id is not registered or occurs twice, no backend can be used, or one rejects an option.
    """
    _import_packages()
    registrations = {registration.id: registration for registration in (*_BUILT_IN.values(), *plugins.registrations)}
    failed = {report.id for report in plugins.reports if report.state is CandidateState.FAILED}
    missing = [id_ for id_ in ids if id_ not in registrations] if failed else []
    backends: list[Backend] = []
    ready: list[Report] = []
    others: list[Report] = []
    for id_ in _check_ids(list(ids), [*sorted(registrations), *missing]):
        if id_ not in registrations:
            if id_ not in failed:
                reason = "no backend with this id was loaded; it may be one of those that failed"
                _log.warning("backend %s is configured but missing: %s", id_, reason)
                others.append(Report(id_, CandidateState.FAILED, "", reason))
            continue
        backend, report = _create(registrations[id_], options)
        if backend is None:
            others.append(report)
        else:
            backends.append(backend)
            ready.append(report)
    reports = (*ready, *others, *_unused(plugins.registrations, ids), *plugins.reports)
    if not backends:
        raise ValueError("no backend can be used: " + "; ".join(f"{report.id}: {report.reason}" for report in reports))
    lifetime.acquire(backends)
    return Assembly(tuple(backends), reports)


def _check_ids(ids: list[str], known: Sequence[str]) -> list[str]:
    for id_ in ids:
        if id_ not in known:
            advice = REPLACED.get(id_) or f"there are {', '.join(known)}"
            raise ValueError(f"there is no backend {id_!r}; {advice}")
        if ids.count(id_) > 1:
            raise ValueError(f"backend {id_!r} is listed twice")
    return ids


def _create(registration: Registration, options: OptionValues) -> tuple[Backend | None, Report]:
    id_, origin, version = registration.id, registration.origin, registration.api_version
    backend: Backend | None = None
    try:
        backend = registration.create(options)
        if fault := identity_fault(backend):
            raise ValueError(fault)
        properties = capabilities(backend)
    except OptionError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        if backend is not None:
            lifetime.close(backend)
        reason = exception_text(error).partition(": ")[2] or type(error).__name__
        _log.warning("backend %s (%s) cannot be used: %s", id_, origin, reason)
        return None, Report(id_, CandidateState.FAILED, origin, reason, api_version=version)
    full = full_version(backend)
    return backend, Report(id_, CandidateState.READY, origin, "", full, version, properties, hardware(backend))


def _unused(registrations: Iterable[Registration], ids: Sequence[str]) -> list[Report]:
    reason = f"registered, not used: the device's backends are {', '.join(ids)}; name it in --backends"
    return [
        Report(item.id, CandidateState.SKIPPED, item.origin, reason, api_version=item.api_version)
        for item in registrations
        if item.id not in ids
    ]


def _import_packages() -> None:
    for module in pkgutil.iter_modules(nnhal_driver.backends.__path__):
        if module.ispkg:
            importlib.import_module(f"nnhal_driver.backends.{module.name}")
