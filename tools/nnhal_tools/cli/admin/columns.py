"""Cells of tables of a service's workers, sessions, models and cache entries, for `nnhal admin` and `nnhal top`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nnhal_tools.cli.console import display_name, format_age, format_bytes, format_seconds
from nnhal_tools.tables import DIGITS

_COLUMNS: Mapping[str, Callable[[Mapping[str, Any], float], object]] = {
    "age": lambda row, now: format_age(now - (row["opened_at"] if "opened_at" in row else row["started_at"])),
    "best": lambda row, now: format_seconds(row["best_s"]),
    "digest": lambda row, now: row["digest"][:DIGITS],
    "drift": lambda row, now: _drift(row["shadow_compared"], row["shadow_different"]),
    "last end": lambda row, now: row["last_end"],
    "longest": lambda row, now: format_seconds(row["longest_s"]),
    "memory": lambda row, now: format_bytes(row["memory_bytes"]) if row["memory_bytes"] else "-",
    "model": lambda row, now: row["id"],
    "name": lambda row, now: display_name(row["model_name"]),
    "priority": lambda row, now: row["priority"].lower(),
    "queued": lambda row, now: row["load"]["queued"],
    "running": lambda row, now: row["load"]["running"],
    "saved": lambda row, now: f"{format_age(now - row['saved_at'])} ago",
    "session": lambda row, now: row["id"],
    "size": lambda row, now: format_bytes(row["size"]),
    "token": lambda row, now: row["token"][:DIGITS],
    "used": lambda row, now: f"{format_age(now - row['last_used_at'])} ago",
    "worker": lambda row, now: row["slot"],
}
"""Value of a column at a time, by its heading. The heading of any other column is the name of a field."""


def cells(rows: Iterable[Mapping[str, Any]], headings: Sequence[str], now: float) -> list[list[str]]:
    """Return the cells of rows of a snapshot that was taken at `now`."""
    return [[_text(_COLUMNS[name](row, now) if name in _COLUMNS else row[name]) for name in headings] for row in rows]


def _drift(compared: int, different: int) -> str:
    """Return the part of the executions that the shadow has computed differently; "" if it has repeated none."""
    if not compared:
        return ""
    return "<0.1%" if 0 < different < compared / 1000 else f"{different / compared:.1%}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)
