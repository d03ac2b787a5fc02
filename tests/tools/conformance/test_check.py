"""How a check's end becomes its result."""

from collections.abc import Callable

import pytest

from tools.conformance.check import (
    CheckFailed,
    Judge,
    NotServiceSpecific,
    Result,
    Skipped,
    Status,
    Unsupported,
    judged,
)
from tools.conformance.run import summary


def result_of(body: Callable[[Judge], None]) -> Result:
    return judged(Result("name", "generated", "SYNC", Status.PASSED), "GEN-04", body)


def test_passed_lists_what_was_evaluated() -> None:
    def body(judge: Judge) -> None:
        judge.expect("GEN-14", True, "", "", "")
        judge.expect("GEN-12", True, "", "", "")
        judge.expect("GEN-14", True, "", "", "")

    result = result_of(body)
    assert (result.status, result.checks, result.check) == (Status.PASSED, ["GEN-14", "GEN-12"], "")


def test_failed_lists_what_does_not_hold() -> None:
    def body(judge: Judge) -> None:
        judge.expect("GEN-12", True, "", "", "")
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
        (Unsupported("why"), Status.UNSUPPORTED, ""),
        (NotServiceSpecific("why"), Status.FAILED, "GEN-04"),
    ],
)
def test_other_ends(error: Exception, status: Status, check: str) -> None:
    def body(judge: Judge) -> None:
        raise error

    result = result_of(body)
    assert (result.status, result.check) == (status, check)
    assert "why" in result.reason


def test_a_defect_of_the_harness_is_no_result() -> None:
    def body(judge: Judge) -> None:
        raise KeyError("defect")

    with pytest.raises(KeyError):
        result_of(body)


def test_the_summary_counts_unsupported_where_there_is_any() -> None:
    results = [Result("", "", "", status) for status in (Status.PASSED, Status.PASSED, Status.SKIPPED, Status.FAILED)]
    assert summary(results) == "2 passed, 1 failed, 1 skipped"
    assert summary([Result("", "", "", Status.UNSUPPORTED)]) == "0 passed, 0 failed, 0 skipped, 1 unsupported"
