"""Calls of methods of backends. What they raise becomes an error of the HAL, and a line in the log.

Calls of a plug-in run on threads of its own (`isolation`).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from nnhal.errors import (
    MISSED_DEADLINE,
    HalError,
    exception_text,
    general_failure,
    is_well_formed,
    shorten,
    well_formed,
)
from nnhal.types import ErrorKind
from nnhal_driver.activity import note_backend
from nnhal_driver.backends.boundary.isolation import HangError, is_isolated, isolated, step
from nnhal_driver.interrupts import is_interrupt
from nnhal_driver.scheduling.current_work import current_work

P = ParamSpec("P")
R = TypeVar("R")

_KINDS = (ErrorKind.UNSPECIFIED, ErrorKind.LIMIT)
"""Kinds of errors that a backend may raise. The others are about sessions and handles, which it does not know."""

_log = logging.getLogger(__name__)


class Named(Protocol):
    """A backend, of which the boundary needs the id only."""

    @property
    def id(self) -> str:
        """Id of the backend."""


def call(backend: Named, method: str, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call a method of a backend, or of something that the backend made. Messages name it `method`.

    Raises:
        HalError: the backend raised it; GENERAL_FAILURE for any other exception, or if a plug-in does not answer; or
            the preparation that waits for it must end.
        MemoryError: there is not enough memory, for which the backend may be no reason.
        KeyboardInterrupt: see `is_interrupt`.
    """
    check = current_work.get().check
    if is_isolated(backend):
        return isolated(backend, method, partial(_call, backend, method, check, function, *arguments, **named))
    return _call(backend, method, check, function, *arguments, **named)  # in executions, so without steps


def call_here(
    backend: Named,
    method: str,
    check: Callable[[], None],
    function: Callable[P, R],
    *arguments: P.args,
    **named: P.kwargs,
) -> R:
    """Call a method on the calling thread, as executions do. `check` raises if the work must end. Raises as `call`."""
    return step(backend, method, partial(_call, backend, method, check, function, *arguments, **named))


def _call(
    backend: Named,
    method: str,
    check: Callable[[], None],
    function: Callable[P, R],
    *arguments: P.args,
    **named: P.kwargs,
) -> R:
    note_backend(backend.id)
    try:
        return function(*arguments, **named)
    except BaseException as error:
        raise translated(backend.id, method, error, check) from None


def call_or(backend: Named, method: str, function: Callable[[], R], default: R) -> R:
    """Return what a method of a backend returns; a default if it fails. The log has the reason."""
    try:
        return call(backend, method, function)
    except (HalError, MemoryError):
        return default


def notify(backend: Named, method: str, function: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> None:
    """Call a method whose failure must not stop the caller. The arguments are those of `call`. Errors are logged."""
    try:
        call(backend, method, function, *arguments, **named)
    except HangError:  # logged once, and not for each call
        pass
    except HalError as error:
        _log.warning("backend %s failed in %s: %s", backend.id, method, error.reason)
    except MemoryError as error:
        _log.warning("backend %s failed in %s: %s", backend.id, method, exception_text(error))


def translated(backend: str, method: str, error: BaseException, check: Callable[[], None]) -> BaseException:
    """Return the exception to raise instead of one that a backend raised: often the same. Logs what is not an error.

    `check` raises if the work must end: no other work can miss its deadline.
    """
    if isinstance(error, HangError | MemoryError) or is_interrupt(error):
        return error
    if type(error) is HalError and _is_valid(error):
        return _verified(backend, method, error, check) if error.status in MISSED_DEADLINE else error
    if type(error) is HalError and (end := _end_of_work(check)) is not None:
        return end  # it is what the check raised
    _log.error("backend %s failed in %s", backend, method, exc_info=error)
    if not isinstance(error, HalError):
        return general_failure(f"backend {backend} failed in {method}: {exception_text(error)}")
    if _is_valid(error):  # a class of the backend's own
        own = HalError(error.status, error.reason, rule=error.rule, kind=error.kind, limit=error.limit)
        return translated(backend, method, own, check)
    invalid = well_formed(error)
    reason = f"an invalid error of kind {error.kind}: {error.reason}" if invalid is error else invalid.reason
    return general_failure(f"backend {backend} raised in {method} {reason}")


def _verified(backend: str, method: str, error: HalError, check: Callable[[], None]) -> HalError:
    """Return the error of work whose backend says that its deadline has passed."""
    if (end := _end_of_work(check)) is not None:
        return end
    reason = shorten(f"backend {backend}: {method} reports a missed deadline that was not missed: {error.reason}")
    _log.error("%s", reason)
    return general_failure(reason)


def _end_of_work(check: Callable[[], None]) -> HalError | None:
    """Return the error that ends the work of a call, or None if it may go on."""
    try:
        check()
    except HalError as end:
        return end.with_traceback(None)
    return None


def invalid_answer(backend: Named, method: str, fault: str) -> HalError:
    """Return the error for an invalid answer, and log it."""
    reason = shorten(f"backend {backend.id}: {method} {fault}")
    _log.error("%s", reason)
    return general_failure(reason)


def describe(value: object) -> str:
    """Return a value of a backend for a message, whatever its `__repr__` does."""
    try:
        text = repr(value)
    except BaseException:
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_valid(error: HalError) -> bool:
    """Return whether a backend may raise an error with these attributes."""
    return is_well_formed(error) and error.kind in _KINDS
