"""The tables that end a run on the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tools.conformance.check import Result, Status
from tools.conformance.report.counts import Counts, Groups, by_operation, by_suite

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_STYLES = {Status.PASSED: "green", Status.FAILED: "bold red", Status.SKIPPED: "yellow", Status.UNSUPPORTED: "magenta"}


def tables(results: Sequence[Result]) -> "list[Table]":
    """A table by suite, and one by operation where any result has a model.

    Operations whose results all passed are left out of the table and counted below it.
    """
    made = [_table("suite", by_suite(results))]
    operations = by_operation(results)
    notable = {name: counts for name, counts in operations.items() if counts[Status.PASSED] != counts.total()}
    if notable:
        made.append(_table("operation", notable))
        made[-1].caption = _others(len(operations) - len(notable))
    elif operations:
        made[-1].caption = f"All results of all {len(operations)} operations passed."
    return made


def _others(count: int) -> str | None:
    if not count:
        return None
    return f"All results of {count} other operation{'s' if count > 1 else ''} passed."


def _table(kind: str, groups: Groups) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")  # the longest operation fits into 80 columns
    table.add_column(kind, overflow="fold")
    for heading in ("total", *Status):
        table.add_column(str(heading), justify="right")
    for name, counts in groups.items():
        table.add_row(Text(name), *_cells(counts))
    return table


def _cells(counts: Counts) -> "list[Text]":
    from rich.text import Text

    figures = [Text(str(counts[status]), _STYLES[status] if counts[status] else "dim") for status in Status]
    return [Text(str(counts.total())), *figures]
