"""Results of checks that pass, fail, or end early."""

from collections.abc import Callable

import pytest

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.check import (
    CheckFailed,
    CheckRecorder,
    NotServiceSpecific,
    Result,
    Skipped,
    Status,
    UnsupportedCase,
    attribute_failures,
    run_check,
)
from nnhal_tools.conformance.device.results import CallOutcome


def result_of(body: Callable[[CheckRecorder], None]) -> Result:
    return run_check(Result("name", "generated", "SYNC", Status.PASSED), "GEN-04", body)


def test_passed_result_lists_evaluated_ids() -> None:
    def body(recorder: CheckRecorder) -> None:
        recorder.expect(True, "", "", "", check="GEN-14")
        recorder.expect(True, "", "", "", check="GEN-12")
        recorder.expect(True, "", "", "")
        recorder.expect(True, "", "", "", check="GEN-14")

    result = result_of(body)
    assert (result.status, result.checks, result.check) == (Status.PASSED, ["GEN-14", "GEN-12", "GEN-04"], "")


def test_failed_result_lists_failed_ids() -> None:
    def body(recorder: CheckRecorder) -> None:
        recorder.expect(True, "", "", "", check="GEN-12")
        raise CheckFailed("VALMODEL-15", "doing this", "that", "other", ("VALMODEL-02",))

    result = result_of(body)
    assert (result.status, result.check) == (Status.FAILED, "VALMODEL-15")
    assert result.checks == ["VALMODEL-15", "VALMODEL-02"]
    assert (result.stimulus, result.expected, result.got) == ("doing this", "that", "other")
    assert result.reason == "VALMODEL-15: doing this: expected that, got other"


@pytest.mark.parametrize(
    ("error", "status", "check"),
    [
        (Skipped("X1", "why"), Status.SKIPPED, "X1"),
        (UnsupportedCase("why"), Status.UNSUPPORTED, ""),
        (NotServiceSpecific("why"), Status.FAILED, "GEN-04"),
    ],
)
def test_early_end(error: Exception, status: Status, check: str) -> None:
    def body(recorder: CheckRecorder) -> None:
        raise error

    result = result_of(body)
    assert (result.status, result.check) == (status, check)
    assert "why" in result.reason


def test_exception_of_the_harness_propagates() -> None:
    def body(recorder: CheckRecorder) -> None:
        raise KeyError("defect")

    with pytest.raises(KeyError):
        result_of(body)


@pytest.mark.parametrize(
    ("status", "allowed", "expected"),
    [
        (ErrorStatus.NONE, (), None),
        (ErrorStatus.INVALID_ARGUMENT, (ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT), None),
        (ErrorStatus.INVALID_ARGUMENT, (), "NONE"),
        (ErrorStatus.NONE, (ErrorStatus.INVALID_ARGUMENT,), "INVALID_ARGUMENT"),
        (99, (ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE), "NONE or GENERAL_FAILURE"),
    ],
)
def test_expected_status(status: int, allowed: tuple[ErrorStatus, ...], expected: str | None) -> None:
    answer = CallOutcome(status, "why")
    result = result_of(lambda recorder: recorder.expect_status(answer, "a call", *allowed, check="GEN-14"))
    assert result.checks == ["GEN-14"]
    if expected is None:
        assert result.status == Status.PASSED
    else:
        assert (result.status, result.expected, result.got) == (Status.FAILED, expected, str(answer))


def test_attributed_failures_have_all_ids_and_the_note() -> None:
    def body(recorder: CheckRecorder) -> None:
        with attribute_failures("GEN-02", note=" (second call)"), attribute_failures("GEN-19"):
            recorder.expect(False, "a call", "this", "that", check="GEN-14")

    result = result_of(body)
    assert (result.check, result.checks) == ("GEN-14", ["GEN-14", "GEN-02", "GEN-19"])
    assert result.stimulus == "a call (second call)"


def test_a_failure_of_an_attributed_id_stays_as_it_is() -> None:
    def body(recorder: CheckRecorder) -> None:
        with attribute_failures("GEN-14", note=" (second call)"):
            recorder.expect(False, "a call", "this", "that", check="GEN-14")

    assert (result_of(body).checks, result_of(body).stimulus) == (["GEN-14"], "a call")
