"""Failures that a run shows at once."""

from nnhal_tools.conformance.report.failures import FailureGroups
from tests.tools.conformance.report.sample_results import FAILED, PASSED, make_result


def test_failure_on_several_paths_is_new_once() -> None:
    groups = FailureGroups()
    shown = []
    for name, path, reason in (
        ("add", "SYNC", "GEN-18: wrong"),
        ("add", "BURST", "GEN-18: wrong"),
        ("add", "FENCED", "GEN-16: late"),
        ("mul", "SYNC", "GEN-18: wrong"),
        ("add", "SYNC-C", "GEN-18: wrong"),
    ):
        result = make_result(name, FAILED, check="GEN-18", reason=reason)
        result.path = path
        if groups.is_new(result):
            shown.append((name, path))
    assert not groups.is_new(make_result("add", PASSED))
    assert shown == [("add", "SYNC"), ("add", "FENCED"), ("mul", "SYNC")]
    assert list(groups.repetitions()) == ["add (generated) failed on BURST, SYNC-C in the same way as on SYNC"]
