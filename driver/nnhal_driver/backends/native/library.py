"""Shared object with the three entry points, and the function table of a backend object in it.

The last reference destroys the object first and then unloads the library.
"""

import _ctypes
import ctypes as c
import hashlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from nnhal.errors import HalError, general_failure
from nnhal.types import Bytes, ErrorStatus
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.options import BackendOptions, OptionError

NO_REASON = "the backend gave no reason"
_FACTORY_WITH_OPTIONS = "BackendFactoryWithOptions"
_REQUIRED_ENTRY_POINTS = "a native backend exports GetBackendId, GetVersion and BackendFactory with C linkage"
_DEVICE_MEMORY = ("device_operands", "acquire_buffer", "release_buffer", "copy_buffer")
"""Functions that a plug-in has together."""
_FAILURES = {status for status in ErrorStatus if status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)}


class PluginError(Exception):
    """A plug-in violates the interface."""


class Library:
    """A loaded shared object.

    Attributes:
        digest: SHA-256 of the file.

    Raises:
        PluginError: the file cannot be loaded, or an entry point is missing.
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
        self._factory_with_options: Callable[..., int | None] | None = None
        if hasattr(loaded, _FACTORY_WITH_OPTIONS):
            arguments = c.POINTER(abi.Options), c.c_char_p, c.c_size_t
            self._factory_with_options = _entry(loaded, _FACTORY_WITH_OPTIONS, c.c_void_p, *arguments)

    def backend_id(self) -> str | None:
        """Call GetBackendId(); None for NULL."""
        id_: bytes | None = self._get_backend_id()
        return None if id_ is None else id_.decode(errors="replace")

    def version(self) -> tuple[int, int]:
        """Call GetVersion()."""
        major, minor = c.c_uint32(), c.c_uint32()
        self._get_version(c.byref(major), c.byref(minor))
        return major.value, minor.value

    def create_backend(self, options: BackendOptions) -> "FunctionTable | None":
        """Call BackendFactoryWithOptions(), or BackendFactory() if the plug-in lacks it; None for NULL.

        Raises:
            PluginError: the table is invalid, or the plug-in gives a reason for its failure.
            OptionError: the plug-in rejects an option.
        """
        address: int | None
        if self._factory_with_options is None:
            address = self._factory()
        else:
            call, reason = _OptionsCall(options), c.create_string_buffer(abi.REASON_BYTES)
            address = self._factory_with_options(c.byref(call.struct), reason, abi.REASON_BYTES)
            call.check()
            if address is None and (text := decode_reason(reason)):
                raise PluginError(f"{_FACTORY_WITH_OPTIONS} failed: {text}")
        return None if address is None else FunctionTable(self, address)


class FunctionTable:
    """Functions of one backend object, which it owns.

    Attributes:
        major, minor: version of the interface, according to the table.
        allocate: allocates outputs and blocks of pieces instead of the backend; None: the backend does.
        borrowed: values of the host that are kept until the object is destroyed.

    Raises:
        PluginError: the table is too small, or a required member is missing.
    """

    def __init__(self, library: Library, address: int) -> None:
        self.address = address
        size = c.c_size_t.from_address(address).value
        last = getattr(abi.BackendTable, abi.REQUIRED[-1][0])
        min_size = last.offset + last.size
        if not min_size <= size < 2**20:
            raise PluginError(
                f"the table has struct_size {size}; expected at least {min_size}: set it to sizeof(NnhalBackend)"
            )
        raw = abi.BackendTable()
        c.memmove(c.byref(raw), address, min(size, c.sizeof(abi.BackendTable)))  # members after its end stay NULL
        self._raw = raw
        self.major, self.minor = raw.major, raw.minor
        missing = [name for name, _ in abi.REQUIRED if not getattr(raw, name)]
        if not raw.version:
            missing.insert(0, "version")
        if missing:
            raise PluginError(f"the table lacks {', '.join(missing)}, which every backend has")
        self.allocate: Callable[[int], Bytes] | None = None
        self.borrowed: list[object] = []
        weakref.finalize(self, _destroy, raw, address, library, self.borrowed).atexit = False
        if self.has("allocate_buffer") != self.has("free_buffer"):
            raise PluginError("the table has only one of allocate_buffer and free_buffer; expected both or neither")
        device = [name for name in _DEVICE_MEMORY if self.has(name)]
        if device and len(device) < len(_DEVICE_MEMORY):
            raise PluginError(
                f"the table has {', '.join(device)}; expected all of {', '.join(_DEVICE_MEMORY)}, or none"
            )
        self.version = raw.version.decode(errors="replace")

    def has(self, name: str) -> bool:
        """Return whether the backend has an optional function."""
        return bool(getattr(self._raw, name))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function with the object and more arguments, without the GIL."""
        return getattr(self._raw, name)(self.address, *arguments)

    def hook(self, name: str, *arguments: Any) -> None:
        """Call an optional function without a result, if the backend has it."""
        if self.has(name):
            self.call(name, *arguments)

    def run(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            HalError: the status and the plug-in's reason.
        """
        reason = c.create_string_buffer(abi.REASON_BYTES)
        status = self.call(name, *arguments, reason, abi.REASON_BYTES)
        if status != ErrorStatus.NONE:
            known = status if status in _FAILURES else ErrorStatus.GENERAL_FAILURE
            raise HalError(known, decode_reason(reason) or f"{name} returned status {status} without a reason")

    def refusal(self, name: str, *arguments: Any) -> str:
        """Call a function that returns whether it agrees. Return "", or the plug-in's reason against it.

        Raises:
            HalError: GENERAL_FAILURE: the answer is neither 0 nor 1.
        """
        reason = c.create_string_buffer(abi.REASON_BYTES)
        answer = self.call(name, *arguments, reason, abi.REASON_BYTES)
        if answer not in (0, 1):
            raise general_failure(f"{name} returned {answer}; expected 0 or 1")
        return "" if answer else decode_reason(reason) or NO_REASON

    def items(self, name: str, *arguments: Any) -> Sequence[Any]:
        """Return the items of an optional function that returns an array; empty if the backend lacks it."""
        if not self.has(name):
            return ()
        count = c.c_size_t()
        items = self.call(name, *arguments, c.byref(count))
        return [items[i] for i in range(count.value)] if items else ()


class _OptionsCall:
    """Options for one call of BackendFactoryWithOptions. `struct` is valid as long as this object."""

    def __init__(self, options: BackendOptions) -> None:
        self._options = options
        self._texts: list[c.Array[c.c_char]] = []
        self._rejection: OptionError | None = None
        self.struct = abi.Options(
            c.sizeof(abi.Options),
            None,
            abi.GetOptionFunction(self._get),
            abi.RejectOptionFunction(self._reject),
            abi.ExcludeOptionFunction(lambda _, key: options.exclude_from_cache_key(_text(key))),
        )

    def check(self) -> None:
        """Raise OptionError if the plug-in has rejected an option."""
        if self._rejection is not None:
            raise self._rejection

    def _get(self, _: object, key: bytes) -> int | None:
        value = self._options.find(_text(key))
        if value is None:
            return None
        self._texts.append(c.create_string_buffer(value.encode()))
        return c.addressof(self._texts[-1])

    def _reject(self, _: object, key: bytes, reason: bytes) -> None:
        self._rejection = self._rejection or OptionError(_text(key), _text(reason) or NO_REASON)


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def decode_reason(buffer: "c.Array[c.c_char]") -> str:
    """Return the text that a plug-in wrote to a buffer, with or without a final 0."""
    return bytes(buffer).split(b"\0", 1)[0].decode(errors="replace").strip()


def _entry(library: c.CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    try:
        function = library[name]
    except AttributeError:
        raise PluginError(f"it has no {name}; {_REQUIRED_ENTRY_POINTS}") from None
    function.restype = result
    function.argtypes = arguments
    return function


def _destroy(raw: abi.BackendTable, address: int, library: Library, borrowed: list[object]) -> None:
    raw.destroy(address)
    borrowed.clear()
    del library
