"""HalError."""

import pytest

from nnhal.errors import HalError, exception_text, well_formed
from nnhal.types import ErrorKind, ErrorStatus


def test_reason_is_truncated_to_2_kib() -> None:
    error = HalError(ErrorStatus.GENERAL_FAILURE, "é" * 3000)
    assert len(error.reason.encode()) <= 2048
    assert error.reason.endswith(" ...")
    assert HalError(ErrorStatus.GENERAL_FAILURE, "é" * 1024).reason == "é" * 1024


def test_reason_is_valid_unicode() -> None:
    assert HalError(ErrorStatus.GENERAL_FAILURE, "\udcff").reason == "?"


@pytest.mark.parametrize(
    "attributes",
    [
        {"status": ErrorStatus.NONE},
        {"status": ErrorStatus.OUTPUT_INSUFFICIENT_SIZE},
        {"status": 99},
        {"status": "2"},
        {"status": [2]},
        {"reason": None},
        {"rule": 7},
        {"kind": 99},
        {"kind": None},
        {"limit": b"x"},
    ],
)
def test_malformed_error_becomes_a_general_failure(attributes: dict[str, object]) -> None:
    error = HalError(ErrorStatus.INVALID_ARGUMENT, "a reason", kind=ErrorKind.LIMIT, limit="x")
    assert well_formed(error) is error
    vars(error).update(attributes)
    replaced = well_formed(error)
    assert (replaced.status, replaced.kind) == (ErrorStatus.GENERAL_FAILURE, ErrorKind.UNSPECIFIED)
    if "status" in attributes:
        assert repr(attributes["status"]) in replaced.reason and "a reason" in replaced.reason


def test_text_of_an_exception_that_cannot_be_printed() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert exception_text(Unprintable()) == "Unprintable: its message cannot be read"
    assert exception_text(ValueError("x")) == "ValueError: x"
    assert exception_text(HalError(ErrorStatus.INVALID_ARGUMENT, "x")) == "HalError: x"
