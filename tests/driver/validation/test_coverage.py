"""Every rule that is enforced has a case that breaks it, and the reference knows every rule that a case names."""

import re
from pathlib import Path

import pytest

from tests.driver.validation import test_model, test_operand, test_preparation, test_request, test_wire

_REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "model-validation.md"


def _ids(section: str, *numbers: int) -> set[str]:
    return {f"V-{section}-{number:02}" for number in numbers}


ENFORCED = (
    _ids("WIRE", *range(1, 8))
    | _ids("POOL", 1, 2, 5)
    | _ids("EXT", 1, 2, 4, 5, 6, 9)
    | _ids("MODEL", 1, 2, 3, 4)
    | _ids("SUBGRAPH", 1, 2, 4, 5, 6, 7, 8, 9, 10, 11)
    | _ids("OPERAND", 1, 2, 3, 4, *range(7, 21))
    | _ids("OPERATION", 1, 2, 4, 6, 7, 9, 10, 11, 13)
    | _ids("PREP", 1, 2, 3)
    | _ids("REQ", 1)
    | _ids("REQARG", 1, 2, 3, 4, 5, 7)
    | _ids("REQMODEL", 1, 3, 4, 5, 6, 7, 8)
    | _ids("EXECARG", 1, 2, 5)
)

# They allow, define, or are another module's.
_NOT_REFUSED_HERE = (
    _ids("POOL", 3, 4)
    | _ids("EXT", 7)
    | _ids("MODEL", 7, 8)
    | _ids("SUBGRAPH", 12)
    | _ids("OPERAND", 5, 6, 21)
    | _ids("OPERATION", 3, 5, 12)
    | _ids("REQ", 2)
    | _ids("REQMODEL", 2)
    | _ids("EXECARG", 3, 4)
    | _ids("ALLOC", *range(1, 7))
    | _ids("TOKEN", *range(1, 7))
)


def test_every_enforced_rule_has_a_case() -> None:
    tables = (test_wire.CASES, test_model.CASES, test_operand.CASES, test_request.CASES, test_preparation.CASES)
    assert {case.rule for table in tables for case in table} - {""} == ENFORCED


@pytest.mark.skipif(not _REFERENCE.exists(), reason="the reference is not next to the project")
def test_every_rule_that_the_reference_marks_as_code_is_accounted_for() -> None:
    rules = re.findall(r"^- \*\*(V-[A-Z]+-\d\d)\*\*(.*)$", _REFERENCE.read_text(), re.MULTILINE)
    marked = {rule for rule, text in rules if "`code" in text}
    assert marked - ENFORCED - _NOT_REFUSED_HERE == set()
    assert {rule for rule, _ in rules} >= ENFORCED
