"""JUnit XML of results."""

from pathlib import Path
from xml.etree import ElementTree

from nnhal_tools.conformance.report.junit_report import write_junit
from tests.tools.conformance.report.sample_results import FAILED, INFO, PASSED, RESULTS, RESULTS_ON_PATHS, make_result


def test_junit_has_a_test_case_for_each_make_result(tmp_path: Path) -> None:
    write_junit(tmp_path / "junit.xml", INFO, RESULTS)
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


def test_name_has_the_path_and_failure_has_the_details(tmp_path: Path) -> None:
    failed = make_result("same", FAILED, "generated", "ADD", check="GEN-18", stimulus="s", expected="e", got="g")
    failed.path = "SYNC"
    passed = make_result("same", PASSED)
    passed.path = "FENCED"
    write_junit(tmp_path / "junit.xml", INFO, [failed, passed])
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [case.get("name") for case in root.iter("testcase")] == ["same [SYNC]", "same [FENCED]"]
    [failure] = root.iter("failure")
    assert failure.text == "stimulus: s\nexpected: e\ngot: g\noperations: ADD on CpuRef"


def test_properties_describe_the_run(tmp_path: Path) -> None:
    write_junit(tmp_path / "junit.xml", INFO, RESULTS)
    for suite in ElementTree.parse(tmp_path / "junit.xml").getroot():
        (properties,) = suite.findall("properties")
        assert {each.get("name"): each.get("value") for each in properties} == {
            "target": "localhost:1",
            "device": "nnhal-cpu",
            "device_version": "nnhal/0.1 Npu/2",
            "service_version": "0.1",
            "nnhal_version": "0.1",
            "commit": "abcdef",
            "backend.Npu": "version 2, ran 0 of 3 operations",
            "backend.CpuRef": "version 1, ran 3 of 3 operations: ADD CONV_2D RELU",
        }


def test_properties_count_operations_by_path(tmp_path: Path) -> None:
    write_junit(tmp_path / "junit.xml", INFO, RESULTS_ON_PATHS)
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["backend.Npu.paths"] == "SYNC 2, BURST 1"


def test_hostile_text_gives_valid_xml(tmp_path: Path) -> None:
    hostile = "</failure> & \" ' ]]> \x00\x1b\ufffe\ud800 ü"
    write_junit(
        tmp_path / "junit.xml", INFO, [make_result(hostile, FAILED, hostile, hostile, check=hostile, reason=hostile)]
    )
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    [case] = root.iter("testcase")
    assert case.get("name") == "</failure> & \" ' ]]> ���� ü"
    assert case[0].get("message") == case.get("name")
