"""HalError."""

from nnhal.errors import HalError
from nnhal.types import ErrorStatus


def test_reason_is_truncated_to_2_kib() -> None:
    error = HalError(ErrorStatus.GENERAL_FAILURE, "é" * 3000)
    assert len(error.reason.encode()) <= 2048
    assert error.reason.endswith(" ...")
    assert HalError(ErrorStatus.GENERAL_FAILURE, "é" * 1024).reason == "é" * 1024
