"""Tables at the end of a run on the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.report.counts import (
    BackendShare,
    Counts,
    Groups,
    by_backend,
    by_operation,
    by_suite,
)
from nnhal_tools.conformance.run_info import RunInfo
from nnhal_tools.tables import counted

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_STYLES = {Status.PASSED: "green", Status.FAILED: "bold red", Status.SKIPPED: "yellow", Status.UNSUPPORTED: "magenta"}
_COUNTS = ("total", *map(str, Status))
"""Columns of `_cells`."""


def summary_tables(results: Sequence[Result], info: RunInfo) -> "list[Table]":
    """Return tables by suite, operation, backend and path. The last three need results that have a model.

    Operations whose results all passed are not in the table. Its caption gives their number.
    """
    tables = [_table("suite", by_suite(results))]
    operations = by_operation(results)
    not_all_passed = {name: counts for name, counts in operations.items() if counts[Status.PASSED] != counts.total()}
    if not_all_passed:
        tables.append(_table("operation", not_all_passed))
        if others := len(operations) - len(not_all_passed):
            tables[-1].caption = f"All results of {counted(others, 'other operation')} passed."
    elif operations:
        tables[-1].caption = f"All results of all {counted(len(operations), 'operation')} passed."
    if shares := by_backend(results, info):  # or else an author takes the operations of other backends for their own
        tables.append(_backend_table(shares, len(operations)))
        tables += _path_tables(shares)
    return tables


def _path_tables(shares: "Sequence[BackendShare]") -> "list[Table]":
    """Return a table with a row for each path and a column for each backend; [] if all results are of one path."""
    paths = list(dict.fromkeys(path for share in shares for path in share.by_path))
    if len(paths) < 2:
        return []
    table = _empty_table("path", *(share.backend.id for share in shares))
    for path in paths:
        table.add_row(path, *(str(len(share.by_path.get(path, ()))) for share in shares))
    table.caption = "Operations by path."
    return [table]


def _backend_table(shares: Sequence[BackendShare], total: int) -> "Table":
    from rich.text import Text

    table = _empty_table("backend", "ran itself", *_COUNTS)
    for share in shares:
        name = Text(" ".join(filter(None, (share.backend.id, share.backend.version))))
        table.add_row(name, Text(f"{len(share.operations)} of {total}"), *_cells(share.counts))
    table.caption = "Operations that a backend ran itself, and their results."
    return table


def _table(heading: str, groups: Groups) -> "Table":
    from rich.text import Text

    table = _empty_table(heading, *_COUNTS)
    for name, counts in groups.items():
        table.add_row(Text(name), *_cells(counts))
    return table


def _empty_table(heading: str, *columns: str) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")  # the longest operation fits in 80 columns
    table.add_column(heading, overflow="fold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right")
    return table


def _cells(counts: Counts) -> "list[Text]":
    from rich.text import Text

    numbers = [Text(str(counts[status]), _STYLES[status] if counts[status] else "dim") for status in Status]
    return [Text(str(counts.total())), *numbers]
