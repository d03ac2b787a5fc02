"""Tables, and numbers with nouns, for terminals."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

DIGITS = 12
"""Hex digits of digests and tokens that tables show."""


def make_table(*headings: str, right: Collection[str] = ()) -> "Table":
    """Return an empty table. `right` has the headings of columns of numbers, which are aligned to the right."""
    from rich.table import Table

    table = Table()
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


def counted(count: int, noun: str) -> str:
    """Return a number with a noun, for example "1 worker" or "2 workers"."""
    return f"{count} {noun if count == 1 else f'{noun}s'}"
