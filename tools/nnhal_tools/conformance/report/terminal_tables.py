"""Tables at the end of a run on the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.report.counts import Counts, Groups, by_operation, by_suite

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_STYLES = {Status.PASSED: "green", Status.FAILED: "bold red", Status.SKIPPED: "yellow", Status.UNSUPPORTED: "magenta"}


def summary_tables(results: Sequence[Result]) -> "list[Table]":
    """Return a table by suite, and one by operation if any result has a model.

    Operations whose results all passed are not in the table. Its caption gives their number.
    """
    tables = [_table("suite", by_suite(results))]
    operations = by_operation(results)
    not_all_passed = {name: counts for name, counts in operations.items() if counts[Status.PASSED] != counts.total()}
    if not_all_passed:
        tables.append(_table("operation", not_all_passed))
        tables[-1].caption = _others(len(operations) - len(not_all_passed))
    elif operations:
        tables[-1].caption = f"All results of all {len(operations)} operations passed."
    return tables


def _others(count: int) -> str | None:
    if not count:
        return None
    return f"All results of {count} other operation{'s' if count > 1 else ''} passed."


def _table(heading: str, groups: Groups) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left")  # the longest operation fits in 80 columns
    table.add_column(heading, overflow="fold")
    for column in ("total", *Status):
        table.add_column(str(column), justify="right")
    for name, counts in groups.items():
        table.add_row(Text(name), *_cells(counts))
    return table


def _cells(counts: Counts) -> "list[Text]":
    from rich.text import Text

    numbers = [Text(str(counts[status]), _STYLES[status] if counts[status] else "dim") for status in Status]
    return [Text(str(counts.total())), *numbers]
