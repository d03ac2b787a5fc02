"""Counts of results by suite, operation and check."""

from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.report.counts import (
    backend_warnings,
    by_backend,
    by_check,
    by_operation,
    by_suite,
    counted_operations,
    summary_line,
)
from tests.tools.conformance.report.sample_results import (
    FAILED,
    INFO,
    PASSED,
    RESULTS,
    RESULTS_ON_PATHS,
    SKIPPED,
    make_result,
)


def test_result_counts_once_for_each_operation() -> None:
    assert by_operation(RESULTS) == {"RELU": {PASSED: 1, FAILED: 2}, "ADD": {SKIPPED: 1}, "CONV_2D": {PASSED: 1}}
    assert list(by_operation(RESULTS)) == ["RELU", "ADD", "CONV_2D"], "most failures first"
    assert by_suite(RESULTS)["generated"] == {PASSED: 1, FAILED: 2, SKIPPED: 1}
    assert list(by_suite(RESULTS)) == ["generated", "burst", "basic"]
    assert list(by_check(RESULTS).items()) == [("GEN-18", {FAILED: 2}), ("BASIC-01", {FAILED: 1})]


def test_neutral_adds_do_not_count() -> None:
    assert counted_operations(make_result("conv_all_inputs_as_internal", PASSED, "", "ADD", "ADD", "CONV_2D")) == [
        "CONV_2D"
    ]
    assert counted_operations(make_result("conv_all_inputs_as_internal", PASSED, "", "CONV_2D")) == ["CONV_2D"]
    assert counted_operations(make_result("add_all_inputs_as_internal", PASSED, "", "ADD", "ADD")) == ["ADD"]
    assert counted_operations(make_result("conv_and_add", PASSED, "", "CONV_2D", "ADD")) == ["CONV_2D", "ADD"]


def test_operations_count_for_the_backend_that_ran_them() -> None:
    mixed = make_result("mixed", PASSED, "generated", "ADD", "CONV_2D")
    mixed.operations = [("ADD", "Npu"), ("CONV_2D", "CpuRef"), ("IF", "driver")]
    neutral = make_result("relu_all_inputs_as_internal", FAILED, "generated", "ADD", "RELU")
    neutral.operations = [("ADD", "Npu"), ("RELU", "CpuRef")]
    shares = by_backend([mixed, neutral, make_result("unknown")], INFO)
    assert [(share.backend.id, share.operations, dict(share.counts)) for share in shares] == [
        ("Npu", {"ADD"}, {PASSED: 1}),
        ("CpuRef", {"CONV_2D", "RELU"}, {PASSED: 1, FAILED: 1}),
        ("driver", {"IF"}, {PASSED: 1}),
    ]
    assert shares[0].describe(4) == "ran 1 of 4 operations"


def test_operations_count_for_each_path() -> None:
    shares = by_backend(RESULTS_ON_PATHS, INFO)
    assert [(share.backend.id, share.describe_paths()) for share in shares] == [
        ("Npu", "SYNC 2, BURST 1"),
        ("CpuRef", "BURST 1"),
    ]


def test_shares_are_unknown_without_placements() -> None:
    result = make_result("foreign", PASSED, "generated", "ADD")
    result.operations = [("ADD", "")]
    assert by_backend([result], INFO) == []


def test_summary_line_counts_unsupported_results_if_any() -> None:
    results = [Result("", "", "", status) for status in (Status.PASSED, Status.PASSED, Status.SKIPPED, Status.FAILED)]
    assert summary_line(results) == "2 passed, 1 failed, 1 skipped"
    assert summary_line([Result("", "", "", Status.UNSUPPORTED)]) == "0 passed, 0 failed, 0 skipped, 1 unsupported"


def test_faults_of_backends_are_shown_although_all_passed() -> None:
    fault = "Npu: asking it failed: IndexError"
    results = [make_result("first", PASSED, "generated", "ADD", faults=[fault]) for _ in range(2)]
    warning = "WARNING Npu ran 0 of 1 operation: these results are those of other backends"
    assert backend_warnings(results, INFO) == [f"FAILED {fault} (2 results; others took over)", warning]
    many = [make_result(str(number), faults=[f"Npu: {number}"]) for number in range(12)]
    assert backend_warnings(many, INFO)[-1] == "FAILED 2 other faults of backends"


def test_plugin_that_ran_operations_is_not_mentioned() -> None:
    assert backend_warnings(RESULTS_ON_PATHS, INFO) == []
