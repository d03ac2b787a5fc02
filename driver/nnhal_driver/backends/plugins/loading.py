"""Loading of a dynamic backend into this process: its entry points, its version, and its object.

Anything invalid raises a LoadError. A crash or an endless loop of the plug-in is not caught here:
`nnhal_driver.backends.plugins.probe` loads it in another process first.
"""

import importlib
import importlib.util
import re
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from nnhal.errors import HalError
from nnhal.types import DeviceType
from nnhal_driver.backends.api import API_VERSION, Backend
from nnhal_driver.backends.identity import set_identity
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.native.backend import NativeBackend
from nnhal_driver.backends.native.library import Library, PluginError
from nnhal_driver.backends.options import (
    BackendOptions,
    OptionError,
    OptionValues,
    call_factory,
    checked_creation,
    identity_with_options,
    keys_read,
)
from nnhal_driver.backends.plugins import private_modules
from nnhal_driver.backends.plugins.discovery import Candidate, CandidateKind
from nnhal_driver.backends.plugins.private_modules import PrivatePackage, package_digest
from nnhal_driver.interrupts import is_interrupt

Version = tuple[int, int]
ProgressCallback = Callable[[str], None]
"""Receives each step before it begins, so that a crash or a hang can be attributed to it."""

_METHODS = ("supports", "compile")
_PRIVATE_NAME = re.compile(rf"{private_modules.PREFIX}\d+\.")
_NO_OPTIONS: OptionValues = {}
T = TypeVar("T")


class LoadError(Exception):
    """This host cannot use a candidate. The message helps its author.

    Attributes:
        id: id of the backend; "" if it is not known yet.
    """

    id = ""


@dataclass(frozen=True, slots=True)
class LoadedBackend:
    """A loaded backend.

    Attributes:
        api_version: version of the interface that it was written for.
        hooks: for each optional function, whether the backend has it.
        options: keys of its options.
    """

    backend: Backend
    api_version: Version
    hooks: dict[str, bool] = field(default_factory=dict)
    options: tuple[str, ...] = ()


def version_mismatch(plugin: Version, host: Version) -> str:
    """Return why a plug-in for one version of the interface cannot run on a host with another, or ""."""
    text = f"it is made for interface {plugin[0]}.{plugin[1]}, this host offers {host[0]}.{host[1]}: "
    if plugin[0] != host[0]:
        return text + "the major versions differ; build it for this host"
    if plugin[1] > host[1]:
        return text + "it may need features that this host lacks; use a newer host, or build it for the older interface"
    return ""


def load(
    candidate: Candidate, report_step: ProgressCallback = lambda _: None, options: OptionValues = _NO_OPTIONS
) -> LoadedBackend:
    """Load a candidate and create a new object of its backend.

    A file is loaded again each time, independently of earlier loads. It is unloaded when neither the backend nor
    anything that it compiled is in use any more. The options are those of all backends.

    Raises:
        LoadError: the candidate is invalid.
        OptionError: the backend rejects an option.
    """
    report_step("loading it")
    exports = _open(candidate)
    try:
        return _load(exports, report_step, options)
    except BaseException:
        exports.discard()
        raise


def _load(exports: "_Python | _Native", report_step: ProgressCallback, values: OptionValues) -> LoadedBackend:
    report_step("calling GetBackendId")
    id_ = _call("GetBackendId", exports.backend_id)
    if not isinstance(id_, str) or not id_ or not id_.isprintable():
        raise LoadError(f"GetBackendId returned {id_!r}; expected a non-empty, printable string")
    try:
        options = BackendOptions(values.get(id_, {}))
        report_step("calling GetVersion")
        version = _check_version(_call("GetVersion", exports.version))
        if fault := version_mismatch(version, exports.host):
            raise LoadError(fault)
        report_step("calling BackendFactory")
        create = partial(exports.create_backend, id_, version, options)
        backend = _check(_call("BackendFactory", lambda: checked_creation(id_, create, options)), id_)
        set_identity(backend, identity_with_options(exports.digest(), options))
        return LoadedBackend(backend, version, _hooks(backend), keys_read(options))
    except LoadError as error:
        error.id = id_
        raise


def _call(name: str, function: Callable[[], T]) -> T:
    try:
        return function()
    except (LoadError, OptionError):
        raise
    except BaseException as error:  # also SystemExit: a plug-in must not end this process
        if is_interrupt(error):
            raise
        raise LoadError(f"{name} failed: {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    """Return an exception as text, with the line of the plug-in that raised it."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    # an import of the plug-in ends in the host's function for imports
    lines = [line for line in lines if line[0] != private_modules.__file__]
    location = f" ({Path(lines[-1][0]).name}, line {lines[-1][1]})" if lines else ""
    text = _PRIVATE_NAME.sub("", error.reason if isinstance(error, HalError) else str(error))
    return f"{type(error).__name__}: {text}{location}"


def _check_version(value: object) -> Version:
    match value:
        case (int(major), int(minor)) if not isinstance(major, bool) and major >= 0 and minor >= 0:
            return major, minor
    raise LoadError(f"GetVersion returned {value!r}; expected (major, minor), two numbers")


def _check(backend: object, id_: str) -> Backend:
    if backend is None:
        raise LoadError("BackendFactory returned nothing")
    if not isinstance(backend, Backend):
        missing = [name for name in _METHODS if not callable(getattr(backend, name, None))]
        lacks = f", and lacks {', '.join(missing)}" if missing else ""
        raise LoadError(f"BackendFactory returned a {type(backend).__name__}, not a nnhal_backend.v1.Backend{lacks}")
    if backend.device_type not in list(DeviceType):
        raise LoadError(f"the backend's device_type is {backend.device_type!r}; expected a DeviceType")
    if (own_id := getattr(backend, "id", None)) != id_:
        raise LoadError(f"GetBackendId returned {id_!r}, but the backend's id is {own_id!r}; they must be equal")
    if not isinstance(getattr(backend, "version", None), str) or not backend.version:
        raise LoadError("the backend has no version; expected a non-empty string")
    return backend


def _hooks(backend: object) -> dict[str, bool]:
    """Return which optional methods a backend overrides."""
    optional_hooks = getattr(backend, "optional_hooks", None)
    if optional_hooks is not None:
        return dict(optional_hooks())
    names = [n for n in vars(Backend) if not n.startswith("_") and n not in _METHODS and callable(getattr(Backend, n))]
    return {name: getattr(type(backend), name) is not getattr(Backend, name) for name in names}


def _open(candidate: Candidate) -> "_Python | _Native":
    if candidate.kind is CandidateKind.NATIVE:
        return _Native(candidate.location)
    if candidate.kind is CandidateKind.PYTHON:
        return _PrivatePython(Path(candidate.location))
    return _call("importing it", lambda: _open_module(candidate.location))


def _open_module(name: str) -> "_Python | _Native":
    """Import a module of a package. A shared object that Python cannot import is a native backend."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None and isinstance(spec.loader, ExtensionFileLoader):
        importable = f"PyInit_{name.rpartition('.')[2]}".encode()
        if importable not in Path(spec.origin).read_bytes():
            return _Native(spec.origin)
    return _Python(importlib.import_module(name))


class _Python:
    """Entry points of a Python module. `host`: version of the interface that the host offers to its kind."""

    host = API_VERSION

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def backend_id(self) -> object:
        return self._function("GetBackendId")()

    def version(self) -> object:
        return self._function("GetVersion")()

    def create_backend(self, id_: str, version: Version, options: BackendOptions) -> object:
        return call_factory(self._function("BackendFactory"), options)

    def digest(self) -> str:
        return package_digest(self._module)

    def discard(self) -> None:
        """Undo the loading of an invalid plug-in. The module stays imported, like any other."""

    def _function(self, name: str) -> Callable[..., object]:
        value = getattr(self._module, name, None)
        if value is None:
            raise LoadError(f"it has no {name}; a backend needs GetBackendId, GetVersion and BackendFactory")
        if not callable(value):
            raise LoadError(f"{name} is a {type(value).__name__}; it must be a function")
        function: Callable[..., object] = value
        return function


class _PrivatePython(_Python):
    """Entry points of a Python file. The file can be loaded any number of times, each time with modules of its own.

    The modules are in sys.modules as long as the backend lives, because dataclasses look them up there.
    """

    def __init__(self, path: Path) -> None:
        self._package = PrivatePackage(path)
        super().__init__(self._package.module)
        try:
            _call("running the file", self._package.run)
        except BaseException:
            self.discard()
            raise

    def create_backend(self, id_: str, version: Version, options: BackendOptions) -> object:
        backend = super().create_backend(id_, version, options)
        if isinstance(backend, Backend):
            weakref.finalize(backend, private_modules.remove, self._package.name).atexit = False
        return backend

    def digest(self) -> str:
        return self._package.digest()

    def discard(self) -> None:
        private_modules.remove(self._package.name)


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

    def create_backend(self, id_: str, version: Version, options: BackendOptions) -> object:
        try:
            memory = options.memory
            table = self._library.create_backend(options)
            if table is None:
                return None
            if (table.major, table.minor) != version:
                text = f"{version[0]}.{version[1]}"
                raise LoadError(
                    f"GetVersion returned {text}, but the table says {table.major}.{table.minor}; they must be equal"
                )
            return NativeBackend(id_, table, memory)
        except PluginError as error:
            raise LoadError(str(error)) from error

    def digest(self) -> str:
        return self._library.digest

    def discard(self) -> None:
        """Do nothing: the library is unloaded with the last reference."""
