"""Lines of logic of each package, and their budgets in docs/weight.md.

A line of logic is one of the product's Python code that is not blank, nor a comment, a docstring, an import or a
signature.
"""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "weight.md"
SOURCE_ROOTS = ("client", "driver", "cache", "service", "tools")
TOTAL = "all of them"
STEP = 25
"""A budget is a multiple of this, so that a fix of a few lines needs no new one."""

_PACKAGE_DEPTH = 3
_GENERATED = re.compile(r"# Generated .*Do not edit")
_ROW = re.compile(r"^\| (?P<package>[^|]+?) \| (?P<purpose>[^|]*?) \| (?P<budget>[\d,]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Budget:
    """Row of the table.

    Attributes:
        purpose: what the package is for.
        lines: largest number of lines of logic.
    """

    purpose: str
    lines: int


def count_logic(source: str) -> int:
    """Return the number of lines of logic of a module."""
    lines = {number for number, line in enumerate(source.splitlines(), 1) if line.strip()[:1] not in ("", "#")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) and not _is_call(node):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines -= set(range(node.lineno, node.body[0].lineno))
    return len(lines)


def _is_call(node: ast.stmt) -> bool:
    """Return whether a statement is an expression other than a docstring or a text that describes an assignment."""
    return isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)


def package_of(path: str) -> str:
    """Return the package that a module counts for: the first three folders of its path."""
    return "/".join(path.split("/")[:-1][:_PACKAGE_DEPTH])


def count_packages(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of logic of each package that has any, generated code aside, and of all of them."""
    counts: Counter[str] = Counter()
    for folder in SOURCE_ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            source = path.read_text("utf-8")
            if "_pb2" not in path.name and not _GENERATED.match(source):
                counts[package_of(path.relative_to(root).as_posix())] += count_logic(source)
    return {**+counts, TOTAL: counts.total()}


def read_budgets(document: Path = DOCUMENT) -> dict[str, Budget]:
    """Return the budget of each package."""
    rows = _ROW.finditer(document.read_text("utf-8"))
    return {row["package"].strip("`"): Budget(row["purpose"], int(row["budget"].replace(",", ""))) for row in rows}


def problems(counts: Mapping[str, int], budgets: Mapping[str, Budget]) -> list[str]:
    """Return a line for each package that exceeds its budget, has no row, or is gone."""
    found = [
        f"{package} has {count:,} lines of logic; its budget is {budgets[package].lines:,}. Remove a second way, or "
        "raise the budget in docs/weight.md and say why in the commit"
        for package, count in counts.items()
        if package in budgets and count > budgets[package].lines
    ]
    found += [
        f"{package} has no budget. Add a row to docs/weight.md that tells what the package is for"
        for package in counts
        if not (package in budgets and budgets[package].purpose)
    ]
    return found + [
        f"{package} is gone. Remove its row from docs/weight.md" for package in budgets if package not in counts
    ]


def render(counts: Mapping[str, int], budgets: Mapping[str, Budget], text: str) -> str:
    """Return a text with a new table: the budgets of today. Purposes stay, and begin as the docstring of a package."""
    rows = []
    for package in (*sorted(package for package in counts if package != TOTAL), TOTAL):
        purpose = budgets[package].purpose if package in budgets else _docstring(package)
        name = package if package == TOTAL else f"`{package}`"
        rows.append(f"| {name} | {purpose} | {-(-counts[package] // STEP) * STEP:,} |")
    head, separator, _ = text.partition("| --- | --- | ---: |\n")
    return f"{head}{separator}" + "\n".join(rows) + "\n"


def _docstring(package: str) -> str:
    module = ROOT / package / "__init__.py"
    text = ast.get_docstring(ast.parse(module.read_text("utf-8"))) if module.is_file() else ""
    return (text or "").partition("\n")[0].rstrip(".")
