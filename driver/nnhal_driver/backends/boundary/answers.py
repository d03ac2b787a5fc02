"""Answers of backends about themselves, operations and allocators. An invalid one costs the backend, not the call."""

import logging
import re
import secrets
from collections.abc import Callable, Iterable, Mapping

from nnhal.errors import HalError, shorten
from nnhal.types import Extension, ExtensionOperandTypeInformation, PerformanceInfo
from nnhal_driver.backends.allocators import CustomAllocator
from nnhal_driver.backends.api import Backend, OperationView, Support
from nnhal_driver.backends.boundary.calls import call, call_or, describe, invalid_answer
from nnhal_driver.backends.identity import full_fingerprint, measured_as

_log = logging.getLogger(__name__)

_SUPPORTED = Support()
FLT_MAX = 3.4028234663852886e38
"""The HAL's figure for operations that a device does not support (hal-surface 5.7), and the largest one."""
_NEUTRAL = PerformanceInfo(1.0, 1.0)

_EXTENSION_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_PROTECTED = "ProtectedContentAllocation"
"""Capability of Arm NN that promises memory which no process reads. Here a client, the host and backends read all."""

_MAX_TYPE = 2**16 - 1
_MAX_BYTES = 2**31 - 1

_UNKNOWN = f"unknown {secrets.token_hex(16)}"
"""Fingerprint of a backend that cannot tell its own: no saved program and no measurement is found again."""


def support(backend: Backend, view: OperationView) -> Support:
    """Return whether a backend supports an operation. One that fails, or gives an invalid answer, does not.

    Raises:
        MemoryError: there is not enough memory.
    """
    try:
        answer: object = call(backend, "supports", backend.supports, view)
    except HalError as error:
        return Support(f"asking it failed: {error.reason}")
    match answer:
        case Support(reason=str(reason), nearest=str(nearest)):
            return Support(shorten(reason), shorten(nearest)) if reason else _SUPPORTED
        case Support():
            fault = f"returned a {type(answer).__name__} whose reason or nearest signature is not text"
        case _:
            fault = f"returned {describe(answer)}; expected a Support"
    return Support(f"asking it failed: {invalid_answer(backend, 'supports', fault).reason}")


def extensions(backend: Backend) -> tuple[Extension, ...]:
    """Return the extensions of a backend. Those that are not well formed are left out, with a line in the log."""
    listed: tuple[object, ...] = call_or(backend, "extensions", lambda: tuple(backend.extensions()), ())
    valid: dict[str, Extension] = {}
    for extension in listed:
        if not isinstance(extension, Extension):
            invalid_answer(backend, "extensions", f"lists {describe(extension)}; expected an Extension")
        elif fault := _extension_fault(extension):
            invalid_answer(backend, "extensions", f"lists {describe(extension.name)}, which is left out: {fault}")
        elif extension.name in valid:
            invalid_answer(backend, "extensions", f"lists {extension.name} twice; the first counts")
        else:
            valid[extension.name] = Extension(extension.name, tuple(extension.operand_types))
    return tuple(valid.values())


def _extension_fault(extension: Extension) -> str:
    """Return why an extension is not well formed, or ""."""
    name: object = extension.name
    if not isinstance(name, str) or not _EXTENSION_NAME.fullmatch(name):
        return "a name has parts of a-z, 0-9 and '_', separated by periods, and begins with the vendor's domain"
    types: object = extension.operand_types
    if not isinstance(types, tuple | list):
        return f"its operand types are {describe(types)}; expected a tuple"
    numbers = set()
    for type_ in types:
        if fault := _type_fault(type_):
            return fault
        if type_.type in numbers:
            return f"it has operand type {type_.type} twice"
        numbers.add(type_.type)
    return ""


def _type_fault(type_: object) -> str:
    """Return why an operand type of an extension is not well formed, or ""."""
    if not isinstance(type_, ExtensionOperandTypeInformation):
        return f"an operand type is {describe(type_)}; expected an ExtensionOperandTypeInformation"
    if not _is_number(type_.type) or not 0 <= type_.type <= _MAX_TYPE:
        return f"operand type {describe(type_.type)} is not between 0 and {_MAX_TYPE}"
    if not isinstance(type_.is_tensor, bool):
        return f"is_tensor of operand type {type_.type} is {describe(type_.is_tensor)}; expected a bool"
    if not _is_number(type_.byte_size) or not 1 <= type_.byte_size <= _MAX_BYTES:
        return f"operand type {type_.type} has {describe(type_.byte_size)} bytes; expected 1 to {_MAX_BYTES}"
    return ""


def capabilities(backend: Backend) -> Mapping[str, bool]:
    """Return the named properties of a backend.

    Raises:
        HalError: GENERAL_FAILURE: it fails, or gives an invalid answer.
        MemoryError: there is not enough memory.
    """
    listed: Mapping[object, object] = call(backend, "capabilities", lambda: dict(backend.capabilities().items()))
    valid = {name: value for name, value in listed.items() if isinstance(name, str) and isinstance(value, bool)}
    if len(valid) < len(listed):
        raise invalid_answer(backend, "capabilities", f"returned {describe(listed)}; expected names with a bool each")
    if valid.pop(_PROTECTED, False):
        _log.warning("backend %s: %s is left out: the host has no protected memory", backend.id, _PROTECTED)
    return valid


def hardware(backend: Backend) -> Mapping[str, str]:
    """Return what a backend tells of its hardware; nothing if it fails or gives an invalid answer."""
    listed: Mapping[object, object] = call_or(backend, "hardware", lambda: dict(backend.hardware().items()), {})
    valid = {name: shorten(value) for name, value in listed.items() if isinstance(name, str) and isinstance(value, str)}
    if len(valid) < len(listed):
        invalid_answer(backend, "hardware", f"returned {describe(listed)}; expected names with a text each")
    return valid


def memory_bytes(backend: Backend) -> int:
    """Return the bytes that a backend uses in the memory of its hardware; 0 if it fails or gives an invalid answer."""
    used: object = call_or(backend, "memory_bytes", backend.memory_bytes, 0)
    if isinstance(used, int) and 0 <= used < 2**63:
        return used
    invalid_answer(backend, "memory_bytes", f"returned {describe(used)}; expected a number of bytes")
    return 0


def performance(backend: Backend) -> PerformanceInfo:
    """Return the performance that a backend states; that of the CPU if it fails or gives an invalid answer."""
    stated: object = call_or(backend, "performance", backend.performance, _NEUTRAL)
    if isinstance(stated, PerformanceInfo):
        figures = (stated.exec_time, stated.power_usage)
        if all(isinstance(figure, float | int) and 0 < figure <= FLT_MAX for figure in figures):
            return stated
    invalid_answer(backend, "performance", f"returned {describe(stated)}; expected positive, finite figures")
    return _NEUTRAL


def fingerprint(backend: Backend) -> str:
    """Return what a saved program depends on. If the backend cannot tell, no other process has the same text."""
    return _fingerprint(backend, full_fingerprint)


def speed_fingerprint(backend: Backend) -> str:
    """Return what the speed of a backend depends on, as `fingerprint` does."""
    return _fingerprint(backend, measured_as)


def _fingerprint(backend: Backend, read: Callable[[Backend], str]) -> str:
    try:
        stated: object = call(backend, "fingerprint", backend.fingerprint)
        if not isinstance(stated, str):
            raise invalid_answer(backend, "fingerprint", f"returned {describe(stated)}; expected a string")
        return shorten(call(backend, "fingerprint", read, backend))
    except (HalError, MemoryError):
        return _UNKNOWN


def identity_fault(backend: Backend) -> str:
    """Return why the id or the version of a backend is invalid, or ""."""
    for name in ("id", "version"):
        text: object = getattr(backend, name, None)
        if not isinstance(text, str) or not text or not text.isprintable():
            return f"its {name} is {describe(text)}; expected a non-empty, printable string"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def offer_allocator(backends: Iterable[Backend], allocator: CustomAllocator) -> dict[str, str]:
    """Offer an allocator to backends. Return for each id why the backend does not use it, or ""."""
    refusals = {backend.id: _offer(backend, allocator) for backend in backends}
    for id_, refusal in refusals.items():
        answer = f"does not use it: {refusal}" if refusal else "uses it"
        _log.info("allocator of %s memory: backend %s %s", allocator.source.name, id_, answer)
    return refusals


def _offer(backend: Backend, allocator: CustomAllocator) -> str:
    """Return why a backend does not use an allocator, or ""."""
    try:
        answer: object = call(backend, "use_allocator", backend.use_allocator, allocator)
    except (HalError, MemoryError) as error:
        return shorten(str(error))
    match answer:
        case Support(reason=str(reason)):
            return shorten(reason)
    fault = f"returned {describe(answer)}; expected a Support"
    return invalid_answer(backend, "use_allocator", fault).reason
