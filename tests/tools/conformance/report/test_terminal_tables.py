"""Tables for the terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from nnhal_tools.conformance.report.terminal_tables import summary_tables
from tests.tools.conformance.report.sample_results import FAILED, INFO, PASSED, RESULTS, RESULTS_ON_PATHS, make_result


def print_tables(tables: Iterable[Table], width: int = 80) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        for table in tables:
            console.print(table)
    return capture.get()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip() and "─" not in line]


def test_tables_count_by_suite_and_by_operation() -> None:
    table_rows = rows(print_tables(summary_tables(RESULTS, INFO)))
    heading = ["total", "passed", "failed", "skipped", "unsupported"]
    assert table_rows == [
        ["suite", *heading],
        ["generated", "4", "1", "2", "1", "0"],
        ["burst", "1", "0", "0", "0", "1"],
        ["basic", "1", "0", "1", "0", "0"],
        ["operation", *heading],
        ["RELU", "3", "1", "2", "0", "0"],
        ["ADD", "1", "0", "0", "1", "0"],
        ["All", "results", "of", "1", "other", "operation", "passed."],
        ["backend", "ran", "itself", *heading],
        ["Npu", "2", "0", "of", "3", "0", "0", "0", "0", "0"],
        ["CpuRef", "1", "3", "of", "3", "4", "1", "2", "1", "0"],
        ["Operations", "that", "a", "backend", "ran", "itself,", "and", "their", "results."],
    ]


def test_passed_operations_have_no_rows() -> None:
    passed = [make_result("a", PASSED, "generated", "ADD"), make_result("b", PASSED, "generated", "RELU")]
    suites, backends = summary_tables(passed, INFO)
    assert print_tables([suites]).splitlines()[-1].strip() == "All results of all 2 operations passed."
    assert backends.row_count == 2
    assert len(summary_tables([RESULTS[3]], INFO)) == 1


def test_long_names_fit_and_markup_is_printed_literally() -> None:
    many = [make_result("a", FAILED, "[red]s[/]", "UNIDIRECTIONAL_SEQUENCE_LSTM")] * 10_000
    text = print_tables(summary_tables(many, INFO))
    assert ["UNIDIRECTIONAL_SEQUENCE_LSTM", "10000", "0", "10000", "0", "0"] in rows(text)
    assert "[red]s[/]" in text


def test_operations_by_path() -> None:
    *_, table = summary_tables(RESULTS_ON_PATHS, INFO)
    assert rows(print_tables([table]))[:3] == [["path", "Npu", "CpuRef"], ["SYNC", "2", "0"], ["BURST", "1", "1"]]
    *_, table = summary_tables(RESULTS_ON_PATHS[:2], INFO)  # one path: the table by backend says it all
    assert rows(print_tables([table]))[0][:2] == ["backend", "ran"]
