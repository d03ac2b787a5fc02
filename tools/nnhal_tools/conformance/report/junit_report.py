"""JUnit XML for CI systems: one test suite for each suite, one test case for each result."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.report.counts import by_backend, by_operation, counted_operations
from nnhal_tools.conformance.run_info import RunInfo

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow, not even escaped."""


def write_junit(path: Path, info: RunInfo, results: Sequence[Result]) -> None:
    """Write the report.

    The class of a test case is "SUITE.OPERATION", with the first operation that the result counts for, or "SUITE" if it
    has no model. An unsupported result is skipped, with the type "unsupported". The properties of each test suite
    describe the device and the whole run.

    Raises:
        OSError: the file cannot be written.
    """
    root = Element("testsuites", {"name": "nnhal conformance"} | _totals(results))
    properties = _properties(info, results)
    for suite in dict.fromkeys(result.suite for result in results):
        members = [result for result in results if result.suite == suite]
        element = SubElement(root, "testsuite", {"name": _clean(suite)} | _totals(members))
        described = SubElement(element, "properties")
        for name, value in properties.items():
            SubElement(described, "property", name=_clean(name), value=_clean(value))
        for result in members:
            _add_test_case(element, result)
    ElementTree.indent(root)
    path.write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _properties(info: RunInfo, results: Sequence[Result]) -> dict[str, str]:
    facts = dict(info.facts)
    total = len(by_operation(results))
    for share in by_backend(results, info):
        version = f"version {share.backend.version}, " if share.backend.version else ""
        names = f": {' '.join(sorted(share.operations))}" if share.operations else ""
        facts[f"backend.{share.backend.id}"] = f"{version}{share.describe(total)}{names}"
        facts[f"backend.{share.backend.id}.paths"] = share.describe_paths()
    return {name: value for name, value in facts.items() if value}


def _totals(results: Sequence[Result]) -> dict[str, str]:
    statuses = [result.status for result in results]
    return {
        "tests": str(len(results)),
        "failures": str(statuses.count(Status.FAILED)),
        "errors": "0",
        "skipped": str(statuses.count(Status.SKIPPED) + statuses.count(Status.UNSUPPORTED)),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _add_test_case(suite: Element, result: Result) -> None:
    classname = ".".join([result.suite, *counted_operations(result)[:1]])
    name = f"{result.name} [{result.path}]" if result.path else result.name
    case = SubElement(suite, "testcase", classname=_clean(classname), name=_clean(name), time=f"{result.seconds:.3f}")
    match result.status:
        case Status.FAILED:
            failure = SubElement(case, "failure", type=_clean(result.check), message=_clean(result.reason))
            failure.text = _clean(_details(result))
        case Status.SKIPPED:
            SubElement(case, "skipped", type=_clean(result.check or "skipped"), message=_clean(result.reason))
        case Status.UNSUPPORTED:
            SubElement(case, "skipped", type="unsupported", message=_clean(result.reason))


def _details(result: Result) -> str:
    operations = [f"{name} on {backend}" if backend else name for name, backend in result.operations]
    fields = {
        "stimulus": result.stimulus,
        "expected": result.expected,
        "got": result.got,
        "operations": ", ".join(operations),
    }
    return "\n".join(f"{key}: {value}" for key, value in fields.items() if value) or result.reason


def _clean(text: str) -> str:
    """Return a text with the replacement character for each character that XML does not allow."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
