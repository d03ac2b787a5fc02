"""Each package keeps its budget in docs/weight.md."""

from pathlib import Path

import pytest

from tests.weight.budgets import (
    TOTAL,
    Budget,
    count_logic,
    count_packages,
    package_of,
    problems,
    read_budgets,
    render,
)

MODULE = '''\
"""Docstring
of two lines."""

import os
from typing import (
    Any,
)

# a comment
LIMIT = 3  # counts
"""A text about the limit."""


@decorator
def read(
    path: str,
) -> Any:
    """Return something."""
    # a comment
    text = """a value
    of two lines"""
    return [
        os.path,
    ]


class Empty:
    """Nothing."""
'''


def test_packages_keep_their_budgets() -> None:
    found = problems(count_packages(), read_budgets())
    assert found == [], "\n".join(found)


def test_only_logic_is_counted() -> None:
    assert count_logic(MODULE) == 1 + 1 + 2 + 3
    assert count_logic("") == 0


def test_modules_count_for_the_first_three_folders() -> None:
    assert package_of("cache/nnhal_cache/layout.py") == "cache/nnhal_cache"
    assert package_of("driver/nnhal_driver/backends/litert/threads.py") == "driver/nnhal_driver/backends"


def test_generated_code_and_empty_packages_do_not_count(tmp_path: Path) -> None:
    texts = {"a/b.py": "x = 1\n", "a/c_pb2.py": "x = 1\n", "a/d.py": "# Generated from e. Do not edit.\nx = 1\n"}
    texts["empty/__init__.py"] = '"""Nothing."""\n'
    for name, text in texts.items():
        path = tmp_path / "cache" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert count_packages(tmp_path) == {"cache/a": 1, TOTAL: 1}


@pytest.mark.parametrize(
    ("counts", "budgets", "problem"),
    [
        ({"a/b": 975}, {"a/b": Budget("b", 975)}, None),
        (
            {"a/b": 990},
            {"a/b": Budget("b", 975)},
            "a/b has 990 lines of logic; its budget is 975. Remove a second way, or raise the budget in "
            "docs/weight.md and say why in the commit",
        ),
        ({"a/b": 1}, {}, "a/b has no budget. Add a row to docs/weight.md that tells what the package is for"),
        (
            {"a/b": 1},
            {"a/b": Budget("", 25)},
            "a/b has no budget. Add a row to docs/weight.md that tells what the package is for",
        ),
        ({}, {"a/b": Budget("b", 25)}, "a/b is gone. Remove its row from docs/weight.md"),
    ],
)
def test_problem_is_named(counts: dict[str, int], budgets: dict[str, Budget], problem: str | None) -> None:
    assert problems(counts, budgets) == ([problem] if problem else [])


def test_written_budgets_keep_the_purposes_and_are_rounded_up(tmp_path: Path) -> None:
    text = "# Weight\n\n| package | what it is for | budget |\n| --- | --- | ---: |\n| `a/gone` | old | 1 |\n"
    path = tmp_path / "weight.md"
    path.write_text(render({"a/b": 1001, TOTAL: 1001}, {"a/b": Budget("b", 7), TOTAL: Budget("all", 7)}, text))
    assert path.read_text().startswith("# Weight\n\n| package |")
    assert read_budgets(path) == {"a/b": Budget("b", 1025), TOTAL: Budget("all", 1025)}
