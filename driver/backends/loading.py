"""Loads one dynamic backend into this process: its three entry points, its version, its object, in this order.

Whatever does not hold raises a LoadError. What a plug-in does to the process while it is loaded (a crash, an endless
loop) is not held here: `driver.backends.probe` tries it in another process first.
"""

import importlib
import importlib.util
import itertools
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from driver.backends.api import API_VERSION, Backend
from driver.backends.discovery import Candidate, Kind
from driver.backends.native import abi
from driver.backends.native.backend import NativeBackend
from driver.backends.native.library import Library, PluginError
from nnhal.errors import HalError

Version = tuple[int, int]
Note = Callable[[str], None]
"""Is told what is about to be done, so that a crash or a hang can be put down to it."""

_METHODS = ("supports", "compile")
_NUMBERS = itertools.count()


class LoadError(Exception):
    """A candidate is no backend that this host can use; says why, in words that its author can act on.

    Attributes:
        id: of the backend; "" before it could say.
    """

    id = ""


class EntryPoints(Protocol):
    """What a plug-in exports, whatever its kind."""

    host: Version
    """Version of the interface that this kind of plug-in meets here."""

    def backend_id(self) -> object:
        """GetBackendId()."""

    def version(self) -> object:
        """GetVersion(): (major, minor)."""

    def make(self, id_: str, version: Version) -> object:
        """BackendFactory()."""

    def discard(self) -> None:
        """Undoes the loading of what turned out to be no backend."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded backend. `hooks`: optional parts of the interface, and whether the plug-in has them."""

    backend: Backend
    api_version: Version
    hooks: dict[str, bool] = field(default_factory=dict)


def version_fault(plugin: Version, host: Version) -> str:
    """Why a plug-in made for one version of the interface cannot run on another; "" when it can."""
    text = f"it is made for interface {plugin[0]}.{plugin[1]}, this host offers {host[0]}.{host[1]}: "
    if plugin[0] != host[0]:
        return text + "the major versions differ, build it again for this host"
    if plugin[1] > host[1]:
        return text + "it may need what this host lacks, use a newer host or build it for the older interface"
    return ""


def load(candidate: Candidate, note: Note = lambda _: None) -> Loaded:
    """Loads a candidate and makes a new object of its backend.

    A file is loaded anew each time, apart from what was loaded before. It is let go when nothing uses the backend, or
    what it compiled, any more.

    Raises:
        LoadError: anything at all is wrong with it.
    """
    note("loading it")
    exports = _open(candidate)
    try:
        return _loaded(exports, note)
    except BaseException:
        exports.discard()
        raise


def _loaded(exports: EntryPoints, note: Note) -> Loaded:
    note("calling GetBackendId")
    id_ = _called("GetBackendId", exports.backend_id)
    if not isinstance(id_, str) or not id_ or not id_.isprintable():
        raise LoadError(f"GetBackendId gave {id_!r}; it must give a text that is not empty")
    try:
        version, made = _made(exports, id_, note)
        return Loaded(_checked(made, id_), version, _hooks(made))
    except LoadError as error:
        error.id = id_
        raise


def _made(exports: EntryPoints, id_: str, note: Note) -> tuple[Version, object]:
    note("calling GetVersion")
    version = _version(_called("GetVersion", exports.version))
    if fault := version_fault(version, exports.host):
        raise LoadError(fault)
    note("calling BackendFactory")
    return version, _called("BackendFactory", lambda: exports.make(id_, version))


def _called(name: str, function: Callable[[], object]) -> object:
    try:
        return function()
    except LoadError:
        raise
    except (Exception, SystemExit) as error:  # also one that ends the process: it may not end this one
        raise LoadError(f"{name} failed: {_described(error)}") from error


def _described(error: BaseException) -> str:
    """An exception with the place in the plug-in where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})" if trace else ""
    text = error.reason if isinstance(error, HalError) else str(error)
    return f"{type(error).__name__}: {text}{where}"


def _version(found: object) -> Version:
    match found:
        case (int(major), int(minor)) if not isinstance(major, bool) and major >= 0 and minor >= 0:
            return major, minor
    raise LoadError(f"GetVersion gave {found!r}; it must give (major, minor), two numbers")


def _checked(backend: object, id_: str) -> Backend:
    if backend is None:
        raise LoadError("BackendFactory gave nothing")
    if not isinstance(backend, Backend):
        lacking = [name for name in _METHODS if not callable(getattr(backend, name, None))]
        lacks = f", and lacks {', '.join(lacking)}" if lacking else ""
        raise LoadError(f"BackendFactory gave a {type(backend).__name__}, not a driver.backends.api.Backend{lacks}")
    if (found := getattr(backend, "id", None)) != id_:
        raise LoadError(f"GetBackendId says {id_!r}, the backend's id is {found!r}; they must be the same")
    if not isinstance(getattr(backend, "version", None), str) or not backend.version:
        raise LoadError("the backend has no version; it must be a text that is not empty")
    return backend


def _hooks(backend: object) -> dict[str, bool]:
    """Which optional methods a backend has of its own."""
    told = getattr(backend, "optional_hooks", None)
    if told is not None:
        return dict(told())
    names = [n for n in vars(Backend) if not n.startswith("_") and n not in _METHODS and callable(getattr(Backend, n))]
    return {name: getattr(type(backend), name) is not getattr(Backend, name) for name in names}


def _open(candidate: Candidate) -> EntryPoints:
    if candidate.kind is Kind.NATIVE:
        return _Native(candidate.location)
    if candidate.kind is Kind.PYTHON:
        return _PrivatePython(Path(candidate.location))
    return _Python(_called("importing it", lambda: importlib.import_module(candidate.location)))


class _Python:
    """Entry points of a Python module."""

    host = API_VERSION

    def __init__(self, module: object) -> None:
        self._module = module

    def backend_id(self) -> object:
        return self._function("GetBackendId")()

    def version(self) -> object:
        return self._function("GetVersion")()

    def make(self, id_: str, version: Version) -> object:
        return self._function("BackendFactory")()

    def discard(self) -> None:
        """Nothing: the module stays imported, as any other."""

    def _function(self, name: str) -> Callable[[], object]:
        found = getattr(self._module, name, None)
        if found is None:
            raise LoadError(f"it has no {name}; a backend needs GetBackendId, GetVersion and BackendFactory")
        if not callable(found):
            raise LoadError(f"{name} is a {type(found).__name__}; it must be a function")
        function: Callable[[], object] = found
        return function


class _PrivatePython(_Python):
    """Entry points of a Python file, as a module that nobody else can import: it can be loaded any number of times.

    The module is in sys.modules as long as its backend lives: dataclasses and the like look it up there.
    """

    def __init__(self, path: Path) -> None:
        self._name = f"_nnhal_backend_{next(_NUMBERS)}_{path.stem}"
        spec = importlib.util.spec_from_file_location(self._name, path)
        assert spec is not None and spec.loader is not None, "the name ends with .py"
        module = importlib.util.module_from_spec(spec)
        super().__init__(module)
        sys.modules[self._name] = module
        try:
            _called("running the file", partial(spec.loader.exec_module, module))
        except BaseException:
            self.discard()
            raise

    def make(self, id_: str, version: Version) -> object:
        made = super().make(id_, version)
        if isinstance(made, Backend):
            weakref.finalize(made, sys.modules.pop, self._name, None).atexit = False
        return made

    def discard(self) -> None:
        sys.modules.pop(self._name, None)


class _Native:
    """Entry points of a shared object."""

    host = (abi.MAJOR, abi.MINOR)

    def __init__(self, path: str) -> None:
        try:
            self._library = Library(path)
        except PluginError as error:
            raise LoadError(str(error)) from error

    def backend_id(self) -> object:
        return self._library.backend_id()

    def version(self) -> object:
        return self._library.version()

    def make(self, id_: str, version: Version) -> object:
        try:
            table = self._library.make()
            if table is None:
                return None
            if (table.major, table.minor) != version:
                told = f"{version[0]}.{version[1]}"
                raise LoadError(f"GetVersion says {told}, the table {table.major}.{table.minor}; they must be the same")
            return NativeBackend(id_, table, self._library.digest)
        except PluginError as error:
            raise LoadError(str(error)) from error

    def discard(self) -> None:
        """Nothing: the library goes with the last reference."""
