"""Errors of the C library: result codes as an exception, and the codes of the HAL's statuses."""

import logging
import os
from typing import Any

from nnhal.errors import DeadObjectError, HalError, SessionLostError
from nnhal.types import ErrorStatus
from nnhal_ndk.api.constants import ResultCode

_log = logging.getLogger("nnhal.ndk")

_CODES: dict[int, ResultCode] = {
    ErrorStatus.NONE: ResultCode.NO_ERROR,
    ErrorStatus.DEVICE_UNAVAILABLE: ResultCode.UNAVAILABLE_DEVICE,
    ErrorStatus.GENERAL_FAILURE: ResultCode.OP_FAILED,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE: ResultCode.OUTPUT_INSUFFICIENT_SIZE,
    ErrorStatus.INVALID_ARGUMENT: ResultCode.BAD_DATA,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: ResultCode.MISSED_DEADLINE_TRANSIENT,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: ResultCode.MISSED_DEADLINE_PERSISTENT,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: ResultCode.RESOURCE_EXHAUSTED_TRANSIENT,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: ResultCode.RESOURCE_EXHAUSTED_PERSISTENT,
}


class NdkError(Exception):
    """Call that fails with a result code.

    Attributes:
        values: what the C function returns through pointers nevertheless.
    """

    def __init__(self, code: ResultCode, reason: str, values: tuple[Any, ...] = ()) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason
        self.values = values


def unexpected_null(reason: str) -> NdkError:
    """Return the error of a pointer that must not be NULL."""
    return NdkError(ResultCode.UNEXPECTED_NULL, reason)


def bad_data(reason: str) -> NdkError:
    """Return the error of a wrong argument."""
    return NdkError(ResultCode.BAD_DATA, reason)


def bad_state(reason: str) -> NdkError:
    """Return the error of a call that comes too early or too late."""
    return NdkError(ResultCode.BAD_STATE, reason)


def op_failed(reason: str) -> NdkError:
    """Return the error of an operation that failed for another reason than its arguments."""
    return NdkError(ResultCode.OP_FAILED, reason)


def code_of_status(error: HalError) -> ResultCode:
    """Return the result code of an error of the HAL."""
    if isinstance(error, DeadObjectError | SessionLostError):
        return ResultCode.DEAD_OBJECT
    return _CODES[error.status]


def code_of_error(error: BaseException) -> ResultCode:
    """Return the result code of any exception."""
    match error:
        case NdkError():
            return error.code
        case HalError():
            return code_of_status(error)
        case MemoryError():
            return ResultCode.OUT_OF_MEMORY
        case _:
            return ResultCode.OP_FAILED


def log_error(function: str, error: BaseException) -> None:
    """Log why a call failed: wrong calls only with the level "debug", and failures of this library with a traceback."""
    code = code_of_error(error)
    if isinstance(error, NdkError):
        _log.debug("%s: %s: %s", function, code.name, error.reason)
    elif isinstance(error, HalError):
        _log.warning("%s: %s: %s", function, code.name, error)
    else:
        _log.error("%s: %s", function, code.name, exc_info=error)


def configure_log() -> None:
    """Log to the standard error, from the level in NNHAL_NDK_LOG on; by default "warning"."""
    if not _log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("libneuralnetworks: %(message)s"))
        _log.addHandler(handler)
        _log.propagate = False
    level = os.environ.get("NNHAL_NDK_LOG", "warning").upper()
    _log.setLevel(level if level in logging.getLevelNamesMapping() else logging.WARNING)
