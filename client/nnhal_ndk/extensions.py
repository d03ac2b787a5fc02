"""Vendor extensions: the numbers of their types in this process, and what devices tell about these."""

import logging
import threading
from typing import Any

import numpy as np

from nnhal.errors import HalError
from nnhal.litert_extension import element_dtypes
from nnhal.types import DTYPES, TYPE_BASE_MAX, ExtensionNameAndPrefix, ExtensionOperandTypeInformation
from nnhal_ndk.devices import NdkDevice, all_devices
from nnhal_ndk.results import bad_data

_log = logging.getLogger("nnhal.ndk")

_PREFIX_SHIFT = 16
_MAX_PREFIX = 2**15 - 1


class ExtensionPrefixes:
    """Prefixes of extensions, which models of this process share. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: list[str] = []

    def type_of(self, name: bytes, code: int) -> int:
        """Return the number of an operand type, operation or attribute of an extension.

        Raises:
            NdkError: BAD_DATA: the name is not text, or the process uses too many extensions.
        """
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise bad_data(f"{name!r} is not the name of an extension") from None
        with self._lock:
            if text not in self._names:
                if len(self._names) == _MAX_PREFIX:
                    raise bad_data(f"the process uses more than {_MAX_PREFIX} extensions")
                self._names.append(text)
            return self._names.index(text) + 1 << _PREFIX_SHIFT | code

    def entry_of(self, type_: int) -> ExtensionNameAndPrefix:
        """Return the extension of a number.

        Raises:
            NdkError: BAD_DATA: it is not a result of `type_of`.
        """
        prefix = type_ >> _PREFIX_SHIFT
        if not 0 < prefix <= len(self._names):
            raise bad_data(f"type {type_} belongs to no extension that this process has asked for")
        return ExtensionNameAndPrefix(self._names[prefix - 1], prefix)


PREFIXES = ExtensionPrefixes()
"""Those of this process."""


def supports_extension(device: NdkDevice, name: bytes) -> bool:
    """Return whether a device supports an extension.

    Raises:
        HalError: the device cannot be reached.
    """
    return any(extension.name.encode() == name for extension in device.hal.extensions)


def describe_operand_type(type_: int) -> ExtensionOperandTypeInformation:
    """Return the description of an extension's operand type, from the first device that supports the extension.

    Raises:
        NdkError: BAD_DATA: no device has it.
    """
    name = PREFIXES.entry_of(type_).name
    for device in all_devices():
        try:
            extensions = device.hal.extensions
        except HalError as error:
            _log.debug("device %s does not tell its extensions: %s", device.name.decode(), error)
            continue
        types = (each for extension in extensions if extension.name == name for each in extension.operand_types)
        if (found := next((each for each in types if each.type == type_ & TYPE_BASE_MAX), None)) is not None:
            return found
    raise bad_data(f"no device has operand type {type_ & TYPE_BASE_MAX} of {name}")


def element_dtype(type_: int) -> np.dtype[Any]:
    """Return the type of the elements of an operand type: opaque bytes, if the client does not know an extension's.

    Raises:
        NdkError: BAD_DATA: no device has it.
    """
    if (plain := DTYPES.get(type_)) is not None:
        return plain
    if (known := element_dtypes((PREFIXES.entry_of(type_),)).get(type_)) is not None:
        return known
    size = describe_operand_type(type_).byte_size
    return np.dtype(np.uint8) if size == 1 else np.dtype((np.void, size))
