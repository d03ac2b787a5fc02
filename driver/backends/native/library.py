"""A shared object with the three entry points, and the table of functions of one backend object in it.

Both are let go when nothing refers to them any more: first the object is destroyed, then the library is unloaded.
"""

import _ctypes
import ctypes as c
import hashlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from driver.backends.native import abi
from nnhal.errors import HalError
from nnhal.types import ErrorStatus

_NEEDED = "a native backend exports GetBackendId, GetVersion and BackendFactory with C linkage"
_FAILURES = {status for status in ErrorStatus if status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)}


class PluginError(Exception):
    """A plug-in does not keep to the interface."""


class Library:
    """A loaded shared object.

    Attributes:
        digest: of the file.

    Raises:
        PluginError: it cannot be loaded, or an entry point is missing; with what the loader says.
    """

    def __init__(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                self.digest = hashlib.file_digest(file, "sha256").hexdigest()
            loaded = c.CDLL(path)
        except OSError as error:
            raise PluginError(f"the shared object cannot be loaded: {error}") from error
        weakref.finalize(self, _ctypes.dlclose, loaded._handle).atexit = False
        self._get_backend_id = _entry(loaded, "GetBackendId", c.c_char_p)
        self._get_version = _entry(loaded, "GetVersion", None, c.POINTER(c.c_uint32), c.POINTER(c.c_uint32))
        self._factory = _entry(loaded, "BackendFactory", c.c_void_p)

    def backend_id(self) -> str | None:
        """GetBackendId(); None where it gives NULL."""
        found: bytes | None = self._get_backend_id()
        return None if found is None else found.decode(errors="replace")

    def version(self) -> tuple[int, int]:
        """GetVersion()."""
        major, minor = c.c_uint32(), c.c_uint32()
        self._get_version(c.byref(major), c.byref(minor))
        return major.value, minor.value

    def make(self) -> "Table | None":
        """BackendFactory(); None where it gives NULL.

        Raises:
            PluginError: the table is not well formed.
        """
        address: int | None = self._factory()
        return None if address is None else Table(self, address)


class Table:
    """The functions of one backend object. Owns the object.

    Attributes:
        major, minor: the version that the object says of itself.
        version: of the backend.

    Raises:
        PluginError: it is smaller than the required part, or lacks a required member.
    """

    def __init__(self, library: Library, address: int) -> None:
        self.address = address
        size = c.c_size_t.from_address(address).value
        least = getattr(abi.Backend, abi.REQUIRED[-1][0])
        if not least.offset + least.size <= size < 2**20:
            raise PluginError(
                f"the table says struct_size {size}; at least {least.offset + least.size} is needed, "
                "set it to sizeof(NnhalBackend)"
            )
        raw = abi.Backend()
        c.memmove(c.byref(raw), address, min(size, c.sizeof(abi.Backend)))  # what lies beyond its end stays NULL
        self._raw = raw
        self.major, self.minor = raw.major, raw.minor
        missing = [name for name, _ in abi.REQUIRED if not getattr(raw, name)]
        if not raw.version:
            missing.insert(0, "version")
        if missing:
            raise PluginError(f"the table lacks {', '.join(missing)}, which every backend has")
        if self.has("allocate_buffer") != self.has("free_buffer"):
            raise PluginError("the table has one of allocate_buffer and free_buffer; they go together")
        self.version = raw.version.decode(errors="replace")
        weakref.finalize(self, _destroy, raw, address, library).atexit = False

    def has(self, name: str) -> bool:
        """Whether the backend has an optional function."""
        return bool(getattr(self._raw, name))

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls a function with the object itself and more arguments. The GIL is released meanwhile."""
        return getattr(self._raw, name)(self.address, *arguments)

    def hook(self, name: str, *arguments: Any) -> None:
        """Calls an optional function that returns nothing, if it is there."""
        if self.has(name):
            self.call(name, *arguments)

    def run(self, name: str, *arguments: Any) -> None:
        """Calls a function that gives a status.

        Raises:
            HalError: the status, with the plug-in's reason.
        """
        reason = c.create_string_buffer(abi.REASON_BYTES)
        status = self.call(name, *arguments, reason, abi.REASON_BYTES)
        if status != ErrorStatus.NONE:
            known = status if status in _FAILURES else ErrorStatus.GENERAL_FAILURE
            raise HalError(known, text(reason) or f"{name} gave status {status} without a reason")

    def listed(self, name: str, *arguments: Any) -> Sequence[Any]:
        """What an optional function gives that counts its items; empty without it."""
        if not self.has(name):
            return ()
        count = c.c_size_t()
        items = self.call(name, *arguments, c.byref(count))
        return [items[i] for i in range(count.value)] if items else ()


def text(buffer: "c.Array[c.c_char]") -> str:
    """A reason that a plug-in wrote, whether or not it has its final 0."""
    return bytes(buffer).split(b"\0", 1)[0].decode(errors="replace").strip()


def _entry(library: c.CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    try:
        function = library[name]
    except AttributeError:
        raise PluginError(f"it has no {name}; {_NEEDED}") from None
    function.restype = result
    function.argtypes = arguments
    return function


def _destroy(raw: abi.Backend, address: int, library: Library) -> None:
    raw.destroy(address)
    del library
