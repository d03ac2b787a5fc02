"""The terminal that commands write to."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console() -> "Console":
    """A console on stdout that prints text as it is: names and labels may hold what rich would take for markup."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)
