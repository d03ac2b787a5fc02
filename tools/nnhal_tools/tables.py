"""Tables of text for terminals."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def make_table(*headings: str, right: Collection[str] = ()) -> "Table":
    """Return an empty table. `right` has the headings of columns of numbers, which are aligned to the right."""
    from rich.table import Table

    table = Table()
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table
