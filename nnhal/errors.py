"""The one exception type of the project: what went wrong, in the HAL's terms, and why."""

from nnhal.enums import ErrorKind, ErrorStatus

MAX_REASON_BYTES = 2048
"""Longer reasons are cut: more than 8 KB of details would reach a gRPC client as another error."""


class HalError(Exception):
    """A call, a preparation or an execution that failed.

    Attributes:
        status: the HAL's `ErrorStatus`, never NONE or OUTPUT_INSUFFICIENT_SIZE (the latter is a result).
        reason: for a person; names the rule broken and the operand, operation or argument; at most 2 KiB.
        rule: id of the rule broken ("V-OPERAND-08"), or "".
        kind: what programs may tell apart beyond the status.
        limit: name of the limit where `kind` is LIMIT, else "".
    """

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        rule: str = "",
        kind: int = ErrorKind.UNSPECIFIED,
        limit: str = "",
    ) -> None:
        self.status = ErrorStatus(status)
        self.reason = _shorten(reason)
        self.rule = rule
        self.kind = kind
        self.limit = limit
        super().__init__(status, reason)

    def __str__(self) -> str:
        return f"{self.status.name}: {self.rule + ': ' if self.rule else ''}{self.reason}"


class SessionLostError(HalError):
    """The session has ended, with everything it owned: connect and prepare again."""


class DeadObjectError(HalError):
    """The service cannot be reached or died during the call (the HAL's DEAD_OBJECT)."""


def invalid_argument(reason: str, rule: str = "") -> HalError:
    """An INVALID_ARGUMENT error."""
    return HalError(ErrorStatus.INVALID_ARGUMENT, reason, rule=rule)


def general_failure(reason: str, rule: str = "") -> HalError:
    """A GENERAL_FAILURE error."""
    return HalError(ErrorStatus.GENERAL_FAILURE, reason, rule=rule)


def out_of_memory(what: str, error: MemoryError) -> HalError:
    """A RESOURCE_EXHAUSTED_TRANSIENT error: memory was short for `what`."""
    return HalError(
        ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, f"not enough memory for {what}: {str(error) or 'none is left'}"
    )


def missed_deadline(reason: str) -> HalError:
    """A MISSED_DEADLINE_TRANSIENT error: the same call may succeed when the device is less busy."""
    return HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, reason)


def expired(reason: str) -> HalError:
    """A MISSED_DEADLINE_PERSISTENT error: the deadline had passed before the work began."""
    return HalError(ErrorStatus.MISSED_DEADLINE_PERSISTENT, reason)


def _shorten(reason: str) -> str:
    raw = reason.encode()
    if len(raw) <= MAX_REASON_BYTES:
        return reason
    return raw[: MAX_REASON_BYTES - 4].decode(errors="ignore") + " ..."
