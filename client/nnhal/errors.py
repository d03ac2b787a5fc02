"""Errors in the HAL's terms: HalError and its subclasses, and functions that create them."""

import sys

from nnhal.enums import ErrorKind, ErrorStatus

MISSED_DEADLINE = frozenset([ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT])
"""Statuses of work that was not done in time."""

FAILURES = frozenset(ErrorStatus) - {ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE}
"""Statuses that an error may have."""
_KINDS = frozenset(ErrorKind)
_NAMED_KINDS = (ErrorKind.UNAUTHENTICATED, ErrorKind.PERMISSION_DENIED)
"""Kinds that say more than the status of their errors."""

DETAILS_KEY = "grpc-status-details-bin"
"""Key of the gRPC trailer with the details of an error."""
MAX_REASON_BYTES = 2048
"""Longer reasons are truncated, because gRPC turns an error with more than 8 KB of details into another error."""


class HalError(Exception):
    """A call, a preparation or an execution that failed.

    Attributes:
        status: the HAL's `ErrorStatus`, never NONE or OUTPUT_INSUFFICIENT_SIZE (the latter is a result).
        reason: a message for people that names the operand, operation or argument; at most 2 KiB.
        rule: id of the broken rule ("V-OPERAND-08"), or "".
        kind: an `ErrorKind`, for programs that need more than the status.
        limit: name of the exceeded limit if `kind` is LIMIT, otherwise "".
        request: id of the failed call, which lines in the log of the service have; or "".
    """

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        rule: str = "",
        kind: int = ErrorKind.UNSPECIFIED,
        limit: str = "",
        request: str = "",
    ) -> None:
        self.status = ErrorStatus(status)
        self.reason = shorten(reason)
        self.rule = rule
        self.kind = kind
        self.limit = limit
        self.request = request
        super().__init__(status, reason)

    def __str__(self) -> str:
        name = ErrorKind(self.kind).name if self.kind in _NAMED_KINDS else self.status.name
        return f"{name}: {self.rule + ': ' if self.rule else ''}{self.reason}"


class SessionLostError(HalError):
    """The session and everything that it owned are gone: connect and prepare again."""


class DeadObjectError(HalError):
    """The service cannot be reached, is stopping, or died during the call (the HAL's DEAD_OBJECT)."""


class InvalidArgumentError(HalError, ValueError):
    """An argument has a wrong value or shape: also a ValueError."""


class InvalidTypeError(HalError, TypeError):
    """An array has elements of a wrong type: also a TypeError."""


class MissingExtraError(DeadObjectError, ImportError):
    """A service cannot start, because the packages of an extra of nnhal are missing: also an ImportError."""


class LinuxRequiredError(HalError):
    """A service would have to run on this machine, whose operating system is not Linux."""


def require_linux(subject: str, hint: str = "") -> None:
    """Check that this system is Linux, which `subject` needs. `hint` says what to do instead.

    Raises:
        LinuxRequiredError: DEVICE_UNAVAILABLE: it is another system.
    """
    if sys.platform != "linux":
        system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        reason = f"{subject} needs Linux, and this is {system}{'; ' if hint else ''}{hint}"
        raise LinuxRequiredError(ErrorStatus.DEVICE_UNAVAILABLE, reason)


def invalid_argument(reason: str, rule: str = "") -> HalError:
    """Return an INVALID_ARGUMENT error of the device."""
    return HalError(ErrorStatus.INVALID_ARGUMENT, reason, rule=rule)


def argument_error(reason: str, rule: str = "") -> InvalidArgumentError:
    """Return the error of a client's function for an argument with a wrong value."""
    return InvalidArgumentError(ErrorStatus.INVALID_ARGUMENT, reason, rule=rule)


def reported_type(status: int) -> type[HalError]:
    """Return the class of an error that a device reports with a status."""
    return InvalidArgumentError if status == ErrorStatus.INVALID_ARGUMENT else HalError


def general_failure(reason: str, rule: str = "") -> HalError:
    """Return a GENERAL_FAILURE error."""
    return HalError(ErrorStatus.GENERAL_FAILURE, reason, rule=rule)


def out_of_memory(purpose: str, error: MemoryError) -> HalError:
    """Return a RESOURCE_EXHAUSTED_TRANSIENT error: there was not enough memory for `purpose`."""
    return HalError(
        ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"not enough memory for {purpose}: {str(error) or 'none is left'}"
    )


def limit_exceeded(limit: str, reason: str, status: ErrorStatus = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT) -> HalError:
    """Return the error of work that exceeds a limit of the service. The limit's name is added to the reason."""
    return HalError(status, f"{reason} (limit {limit})", kind=ErrorKind.LIMIT, limit=limit)


def missed_deadline(reason: str) -> HalError:
    """Return a MISSED_DEADLINE_TRANSIENT error: the same call may succeed if the device is less busy."""
    return HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, reason)


def expired(reason: str) -> HalError:
    """Return a MISSED_DEADLINE_PERSISTENT error: the deadline had passed before the work began."""
    return HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, reason)


def is_well_formed(error: HalError) -> bool:
    """Return whether the attributes of an error have the types and values of an error of the HAL.

    Code that raises one can set them at will.
    """
    status, kind = getattr(error, "status", None), getattr(error, "kind", None)
    if not isinstance(status, int) or status not in FAILURES or not isinstance(kind, int) or kind not in _KINDS:
        return False
    return all(isinstance(getattr(error, name, None), str) for name in ("reason", "rule", "limit"))


def well_formed(error: HalError) -> HalError:
    """Return the error itself; or, if no error of the HAL has its status, a GENERAL_FAILURE that tells what it had."""
    if is_well_formed(error):
        return error
    return general_failure(f"an invalid error with status {_safe_repr(getattr(error, 'status', None))}: {_text(error)}")


def exception_text(error: BaseException) -> str:
    """Return the class and the message of an exception, even if its `__str__` fails."""
    return f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    try:
        return f"{error.reason}" if isinstance(error, HalError) else str(error)
    except BaseException:
        return "its message cannot be read"


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"of type {type(value).__name__}"


def shorten(text: str) -> str:
    """Return a text in the form of a reason: at most 2 KiB of valid UTF-8."""
    raw = text.encode(errors="replace")
    if len(raw) <= MAX_REASON_BYTES:
        return raw.decode()
    return raw[: MAX_REASON_BYTES - 4].decode(errors="ignore") + " ..."
