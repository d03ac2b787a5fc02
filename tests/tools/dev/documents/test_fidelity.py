"""The page of fidelity: it is complete, and dead links are found."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools.dev.documents.fidelity import (
    BrokenLink,
    Row,
    Section,
    problems,
    read_deviations,
    read_sections,
    render_page,
    resolve,
)

HERE = "tests/tools/dev/documents/test_fidelity.py"
ROW = Row(
    "A1",
    "it works",
    (f"{HERE}::test_dead_link_is_found", "EXTRA-10"),
    ("fault tokens-repeat",),
    open=True,
)


def problems_of(*rows: Row, deviations: set[str] | None = None) -> list[str]:
    return problems([Section("", rows)], deviations or set())


def test_page_has_all_rows_and_no_dead_links() -> None:
    sections = resolve(read_sections())
    rows = [row for section in sections for row in section.rows]
    assert len(rows) == 254 and sum(row.open for row in rows) == 57
    assert problems(sections, read_deviations()) == []


class TestMethods:
    def test_in_a_class(self) -> None:
        row = replace(ROW, shown_by=(f"{HERE}::TestMethods.test_in_a_class",))
        assert problems_of(row) == []
        assert problems_of(replace(ROW, shown_by=(f"{HERE}::test_in_a_class",)))


@pytest.mark.parametrize(
    "link",
    [
        f"{HERE}::test_missing",
        f"{HERE}::problems_of",
        "tests/missing.py::test_dead_link_is_found",
        "EXTRA-99",
        "fault missing",
    ],
)
def test_dead_link_is_found(link: str) -> None:
    assert problems_of(ROW) == []
    assert problems_of(replace(ROW, shown_by=(*ROW.shown_by, link))) == [f"A1: {link} does not exist"]
    assert problems_of(replace(ROW, found_by=(link,))) == [f"A1: {link} does not exist"]


def test_row_without_evidence_is_found() -> None:
    assert problems_of(replace(ROW, shown_by=())) == ["A1: no test shows it"]
    assert problems_of(replace(ROW, shown_by=()), deviations={"A1"}) == []
    assert problems_of(replace(ROW, found_by=())) == ["A1: nothing finds it in a device"]
    assert problems_of(replace(ROW, found_by=(), open=False)) == []
    assert problems_of(ROW, ROW) == ["A1: listed twice"]
    assert problems_of(ROW, deviations={"A2"}) == ["A2: a deviation without a row"]


def test_repeated_row_has_the_tests_of_the_first() -> None:
    repeats = Row("B1", "it works", same_as=("A1",))
    (section,) = resolve([Section("", [ROW, repeats])])
    assert section.rows[1].shown_by == ROW.shown_by and section.rows[1].found_by == ROW.found_by
    with pytest.raises(BrokenLink, match="B1: unknown row A2"):
        resolve([Section("", [replace(repeats, same_as=("A2",))])])


def test_rows_are_rendered_with_links(tmp_path: Path) -> None:
    path = tmp_path / "deviations.md"
    path.write_text("| id | sentence |\n|---|---|\n| A2, A3 | why |\n")
    deviations = read_deviations(path)
    assert deviations == {"A2", "A3"}
    page = render_page([Section("Title", [ROW, Row("A2", "it | differs")])], deviations)
    assert "2 rows: 1 work, 1 are deviations." in page
    assert f"| A1 | it works | [dead_link_is_found](../{HERE}), EXTRA-10 | *fault tokens-repeat* | works |" in page
    assert "| A2 | it \\| differs | – |  | [deviation](deviations.md) |" in page
