"""Every enforced rule has a test case, and every rule of a test case is in the reference."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.shared import shared


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

# These rules allow or define something, or belong to another module.
_NOT_ENFORCED_HERE = (
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


def _rules_with_a_case() -> Iterator[str]:
    """Yield the rule of each test case: the first argument of ModelCase, RequestCase and the like."""
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str(rule)), *_]):
                    if name.lower().endswith("case") and rule:
                        yield rule


def test_every_enforced_rule_has_a_case() -> None:
    assert set(_rules_with_a_case()) == ENFORCED


def test_every_rule_marked_as_code_in_the_reference_is_listed() -> None:
    rules = re.findall(
        r"^- \*\*(V-[A-Z]+-\d\d)\*\*(.*)$", shared("reference/model-validation.md").read_text(), re.MULTILINE
    )
    marked = {rule for rule, text in rules if "`code" in text}
    assert marked - ENFORCED - _NOT_ENFORCED_HERE == set()
    assert {rule for rule, _ in rules} >= ENFORCED
