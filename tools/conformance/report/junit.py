"""JUnit XML, as CI systems read it: a testsuite for each suite, a testcase for each result."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from tools.conformance.check import Result, Status
from tools.conformance.report.counts import operations_of

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even escaped."""


def write_junit(path: Path, results: Sequence[Result]) -> None:
    """Writes the report.

    The class of a testcase is "SUITE.OPERATION", with the first operation that the result counts for; "SUITE" where it
    has no model. A check that the device does not support is skipped, with the type "unsupported".

    Raises:
        OSError: the file cannot be written.
    """
    root = Element("testsuites", {"name": "nnhal conformance"} | _totals(results))
    for suite in dict.fromkeys(result.suite for result in results):
        members = [result for result in results if result.suite == suite]
        element = SubElement(root, "testsuite", {"name": _text(suite)} | _totals(members))
        for result in members:
            _add(element, result)
    ElementTree.indent(root)
    path.write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _totals(results: Sequence[Result]) -> dict[str, str]:
    statuses = [result.status for result in results]
    return {
        "tests": str(len(results)),
        "failures": str(statuses.count(Status.FAILED)),
        "errors": "0",
        "skipped": str(statuses.count(Status.SKIPPED) + statuses.count(Status.UNSUPPORTED)),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _add(suite: Element, result: Result) -> None:
    classname = ".".join([result.suite, *operations_of(result)[:1]])
    name = f"{result.name} [{result.path}]" if result.path else result.name
    case = SubElement(suite, "testcase", classname=_text(classname), name=_text(name), time=f"{result.seconds:.3f}")
    match result.status:
        case Status.FAILED:
            failure = SubElement(case, "failure", type=_text(result.check), message=_text(result.reason))
            failure.text = _text(_details(result))
        case Status.SKIPPED:
            SubElement(case, "skipped", type=_text(result.check or "skipped"), message=_text(result.reason))
        case Status.UNSUPPORTED:
            SubElement(case, "skipped", type="unsupported", message=_text(result.reason))


def _details(result: Result) -> str:
    placed = [f"{name} on {backend}" if backend else name for name, backend in result.operations]
    lines = {
        "stimulus": result.stimulus,
        "expected": result.expected,
        "got": result.got,
        "operations": ", ".join(placed),
    }
    return "\n".join(f"{key}: {value}" for key, value in lines.items() if value) or result.reason


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
