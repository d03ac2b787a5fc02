"""Reports of a run: the numbers that all of them show, JUnit XML, and the tables for the terminal."""

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from tools.conformance.check import Result, Status
from tools.conformance.report import tables, write_junit
from tools.conformance.report.counts import by_check, by_operation, by_suite, operations_of

PASSED, FAILED, SKIPPED, UNSUPPORTED = Status


def result(name: str, status: Status = PASSED, suite: str = "generated", *operations: str, **more: object) -> Result:
    placed = [(operation, "CpuRef") for operation in operations]
    return Result(name, suite, "", status, operations=placed, **more)  # type: ignore[arg-type]


RESULTS = [
    result("first", PASSED, "generated", "CONV_2D", "RELU", "CONV_2D"),
    result("second", FAILED, "generated", "RELU", check="GEN-18", reason="why", seconds=1.5),
    result("third", SKIPPED, "generated", "ADD", check="X2", reason="X2: not so"),
    result("fourth", UNSUPPORTED, "burst", reason="no such call"),
    result("fifth", FAILED, "basic", check="BASIC-01", reason="no"),
    result("sixth", FAILED, "generated", "RELU", check="GEN-18"),
]


def printed(made: Iterable[Table], width: int = 80) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        for table in made:
            console.print(table)
    return capture.get()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip() and "─" not in line]


def test_a_result_counts_once_for_each_operation() -> None:
    assert by_operation(RESULTS) == {"RELU": {PASSED: 1, FAILED: 2}, "ADD": {SKIPPED: 1}, "CONV_2D": {PASSED: 1}}
    assert list(by_operation(RESULTS)) == ["RELU", "ADD", "CONV_2D"], "most failures first"
    assert by_suite(RESULTS)["generated"] == {PASSED: 1, FAILED: 2, SKIPPED: 1}
    assert list(by_suite(RESULTS)) == ["generated", "burst", "basic"]
    assert list(by_check(RESULTS).items()) == [("GEN-18", {FAILED: 2}), ("BASIC-01", {FAILED: 1})]


def test_neutral_adds_do_not_count() -> None:
    assert operations_of(result("conv_all_inputs_as_internal", PASSED, "", "ADD", "ADD", "CONV_2D")) == ["CONV_2D"]
    assert operations_of(result("conv_all_inputs_as_internal", PASSED, "", "CONV_2D")) == ["CONV_2D"]
    assert operations_of(result("add_all_inputs_as_internal", PASSED, "", "ADD", "ADD")) == ["ADD"]
    assert operations_of(result("conv_and_add", PASSED, "", "CONV_2D", "ADD")) == ["CONV_2D", "ADD"]


def test_junit_holds_each_result_and_its_outcome(tmp_path: Path) -> None:
    write_junit(tmp_path / "junit.xml", RESULTS)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert root.attrib | {"name": ""} == {
        "name": "", "tests": "6", "failures": "3", "errors": "0", "skipped": "2", "time": "1.500",
    }  # fmt: skip
    suites = {suite.get("name"): suite for suite in root}
    assert {name: (s.get("tests"), s.get("failures"), s.get("skipped")) for name, s in suites.items()} == {
        "generated": ("4", "2", "1"),
        "burst": ("1", "0", "1"),
        "basic": ("1", "1", "0"),
    }
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert cases["first"].get("classname") == "generated.CONV_2D" and not len(cases["first"])
    assert cases["fifth"].get("classname") == "basic"
    assert cases["second"].get("time") == "1.500"
    outcomes = {name: (case[0].tag, *case[0].attrib.values()) for name, case in cases.items() if len(case)}
    assert outcomes == {
        "second": ("failure", "GEN-18", "why"),
        "third": ("skipped", "X2", "X2: not so"),
        "fourth": ("skipped", "unsupported", "no such call"),
        "fifth": ("failure", "BASIC-01", "no"),
        "sixth": ("failure", "GEN-18", ""),
    }


def test_junit_tells_paths_apart_and_says_what_was_done_expected_and_got(tmp_path: Path) -> None:
    one = result("same", FAILED, "generated", "ADD", check="GEN-18", stimulus="s", expected="e", got="g")
    one.path = "SYNC"
    other = result("same", PASSED)
    other.path = "FENCED"
    write_junit(tmp_path / "junit.xml", [one, other])
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [case.get("name") for case in root.iter("testcase")] == ["same [SYNC]", "same [FENCED]"]
    [failure] = root.iter("failure")
    assert failure.text == "stimulus: s\nexpected: e\ngot: g\noperations: ADD on CpuRef"


def test_junit_is_xml_whatever_a_device_says(tmp_path: Path) -> None:
    hostile = "</failure> & \" ' ]]> \x00\x1b\ufffe\ud800 ü"
    write_junit(tmp_path / "junit.xml", [result(hostile, FAILED, hostile, hostile, check=hostile, reason=hostile)])
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    [case] = root.iter("testcase")
    assert case.get("name") == "</failure> & \" ' ]]> ���� ü"
    assert case[0].get("message") == case.get("name")


def test_tables_count_by_suite_and_by_operation() -> None:
    shown = rows(printed(tables(RESULTS)))
    heading = ["total", "passed", "failed", "skipped", "unsupported"]
    assert shown == [
        ["suite", *heading],
        ["generated", "4", "1", "2", "1", "0"],
        ["burst", "1", "0", "0", "0", "1"],
        ["basic", "1", "0", "1", "0", "0"],
        ["operation", *heading],
        ["RELU", "3", "1", "2", "0", "0"],
        ["ADD", "1", "0", "0", "1", "0"],
        ["All", "results", "of", "1", "other", "operation", "passed."],
    ]


def test_operations_that_passed_need_no_rows() -> None:
    passed = [result("a", PASSED, "generated", "ADD"), result("b", PASSED, "generated", "RELU")]
    assert printed(tables(passed)).splitlines()[-1].strip() == "All results of all 2 operations passed."
    assert len(tables([RESULTS[3]])) == 1


def test_long_names_fit_and_markup_is_printed_as_it_is() -> None:
    many = [result("a", FAILED, "[red]s[/]", "UNIDIRECTIONAL_SEQUENCE_LSTM")] * 10_000
    text = printed(tables(many))
    assert ["UNIDIRECTIONAL_SEQUENCE_LSTM", "10000", "0", "10000", "0", "0"] in rows(text)
    assert "[red]s[/]" in text
