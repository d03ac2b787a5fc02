"""Results of checks that pass, fail, or end early."""

from collections.abc import Callable

import pytest

from nnhal_tools.conformance.check import (
    CheckFailed,
    CheckRecorder,
    NotServiceSpecific,
    Result,
    Skipped,
    Status,
    UnsupportedCase,
    run_check,
)


def result_of(body: Callable[[CheckRecorder], None]) -> Result:
    return run_check(Result("name", "generated", "SYNC", Status.PASSED), "GEN-04", body)


def test_passed_result_lists_evaluated_ids() -> None:
    def body(recorder: CheckRecorder) -> None:
        recorder.expect("GEN-14", True, "", "", "")
        recorder.expect("GEN-12", True, "", "", "")
        recorder.expect("GEN-14", True, "", "", "")

    result = result_of(body)
    assert (result.status, result.checks, result.check) == (Status.PASSED, ["GEN-14", "GEN-12"], "")


def test_failed_result_lists_failed_ids() -> None:
    def body(recorder: CheckRecorder) -> None:
        recorder.expect("GEN-12", True, "", "", "")
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
