"""Demands of the source documents, and the tests that show them: docs/fidelity.md, from tests/data/fidelity.toml."""

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nnhal_tools.conformance.ids import CHECKS
from tests.tools.conformance.selftest.fault import FAULTS
from tests.tools.conformance.selftest.faults import load
from tools.dev.documents.markdown import ROOT, Documents, escape, render

DATA = ROOT / "tests" / "data" / "fidelity.toml"
DEVIATIONS = ROOT / "docs" / "deviations.md"

FAULT = "fault "


@dataclass(frozen=True)
class Row:
    """Demand of a document.

    Attributes:
        id: its id, for example "PM33".
        shown_by: tests ("path::test") and ids of the harness that show it.
        found_by: ids, faults ("fault NAME") and tests that find the defect; for rows that the audit found open.
        same_as: the rows that it repeats, whose tests it shares.
    """

    id: str
    demand: str
    shown_by: Sequence[str] = ()
    found_by: Sequence[str] = ()
    same_as: Sequence[str] = ()
    open: bool = False


@dataclass(frozen=True)
class Section:
    """Rows of one part of a document."""

    title: str
    rows: Sequence[Row]


class BrokenLink(ValueError):
    """A row names something that does not exist."""


def read_sections(path: Path = DATA) -> list[Section]:
    """Return the sections of the data file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Section(section["title"], [Row(**row) for row in section["row"]]) for section in data["section"]]


def read_deviations(path: Path = DEVIATIONS) -> set[str]:
    """Return the ids in the first column of the list of deviations."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("|")][2:]
    return {id_.strip() for cell in cells for id_ in cell.split(",")}


def resolve(sections: Sequence[Section]) -> list[Section]:
    """Return the sections, with rows that repeat others completed by their tests.

    Raises:
        BrokenLink: a row repeats an unknown row.
    """
    by_id = {row.id: row for section in sections for row in section.rows}
    return [Section(section.title, [_resolved(row, by_id) for row in section.rows]) for section in sections]


def _resolved(row: Row, by_id: Mapping[str, Row]) -> Row:
    if unknown := sorted(set(row.same_as) - set(by_id)):
        raise BrokenLink(f"{row.id}: unknown row {unknown[0]}")
    repeated = [by_id[id_] for id_ in row.same_as]
    shown_by = dict.fromkeys([*row.shown_by, *(test for other in repeated for test in other.shown_by)])
    found_by = dict.fromkeys([*row.found_by, *(finder for other in repeated for finder in other.found_by)])
    return replace(row, shown_by=tuple(shown_by), found_by=tuple(found_by))


def is_deviation(row: Row, deviations: set[str]) -> bool:
    """Return whether a row, or a row that it repeats, is in the list of deviations."""
    return not deviations.isdisjoint({row.id, *row.same_as})


def problems(sections: Sequence[Section], deviations: set[str], root: Path = ROOT) -> list[str]:
    """Return a line for each dead link, each row without a test, and each row that is listed twice."""
    load()
    rows = [row for section in sections for row in section.rows]
    found = [f"{row.id}: listed twice" for i, row in enumerate(rows) if row.id in {other.id for other in rows[:i]}]
    found += [f"{id_}: a deviation without a row" for id_ in sorted(deviations - {row.id for row in rows})]
    for row in rows:
        found += [f"{row.id}: {link} does not exist" for link in _dead_links(row, root)]
        if not row.shown_by and not is_deviation(row, deviations):
            found.append(f"{row.id}: no test shows it")
        if row.open and not row.found_by:
            found.append(f"{row.id}: nothing finds it in a device")
    return found


def _dead_links(row: Row, root: Path) -> Iterator[str]:
    for link in (*row.shown_by, *row.found_by):
        path, separator, name = link.partition("::")
        if separator:
            exists = (root / path).is_file() and name in _test_names(root / path)
        elif link.startswith(FAULT):
            exists = link.removeprefix(FAULT) in FAULTS
        else:
            exists = link in CHECKS
        if not exists:
            yield link


@cache
def _test_names(path: Path) -> frozenset[str]:
    """Return the names of the test functions of a module, and "Class.name" for those of its classes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [("", tree), *((f"{node.name}.", node) for node in tree.body if isinstance(node, ast.ClassDef))]
    return frozenset(
        prefix + node.name
        for prefix, parent in classes
        for node in parent.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def render_page(sections: Sequence[Section], deviations: set[str]) -> str:
    """Return the page."""
    rows = [row for section in sections for row in section.rows]
    return render(
        "fidelity",
        count=len(rows),
        deviations=sum(is_deviation(row, deviations) for row in rows),
        sections=[(section.title, [_cells(row, deviations) for row in section.rows]) for section in sections],
    )


def _cells(row: Row, deviations: set[str]) -> list[str]:
    verdict = "[deviation](deviations.md)" if is_deviation(row, deviations) else "works"
    shown_by = ", ".join(map(_link, row.shown_by)) or "–"
    repeats = f" (repeats {', '.join(row.same_as)})" if row.same_as else ""
    return [row.id, escape(row.demand) + repeats, shown_by, ", ".join(map(_link, row.found_by)), verdict]


def _link(link: str) -> str:
    path, separator, name = link.partition("::")
    if separator:
        return f"[{name.rpartition('.')[2].removeprefix('test_')}](../{path})"
    return f"*{link}*" if link.startswith(FAULT) else link


def generate() -> Documents:
    """Return the page.

    Raises:
        SystemExit: a row names something that does not exist, or nothing shows it.
    """
    sections, deviations = resolve(read_sections()), read_deviations()
    if broken := problems(sections, deviations):
        raise SystemExit("\n".join(broken))
    return {Path("docs/fidelity.md"): render_page(sections, deviations)}
