"""Results of many files as CSV, as JSON Lines, or as a table: a line for each file."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class FileResult:
    """Result of a file.

    Attributes:
        row: the result in one line: cells by column.
        facts: all of it, for JSON.
        error: why there is none, or "".
    """

    file: str
    row: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {"file": self.file, **({"error": self.error} if self.error else self.facts)}


def columns(records: Sequence[FileResult]) -> list[str]:
    """Return the names of the columns. Errors have one if there are any."""
    names = dict.fromkeys(name for record in records for name in record.row)
    return ["file", *names, *(["error"] if any(record.error for record in records) else [])]


def table(records: Sequence[FileResult]) -> "Table":
    """Return a table with a row for each file."""
    names = columns(records)
    numbers = {name for record in records for name, value in record.row.items() if isinstance(value, int | float)}
    result = make_table(*names, right=numbers)
    for record in records:
        row = {"file": record.file, **record.row, "error": record.error}
        result.add_row(*(_cell(row.get(name)) for name in names))
    return result


def write_csv(path: Path, records: Sequence[FileResult]) -> None:
    """Write a CSV file with a line for each file."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns(records), restval="")
        writer.writeheader()
        writer.writerows(
            {"file": record.file, **record.row, **({"error": record.error} if record.error else {})}
            for record in records
        )


def write_line(stream: TextIO, record: FileResult) -> None:
    """Write a record as a line of JSON, at once: a long run can be watched, and interrupted."""
    stream.write(json.dumps(record.to_json(), ensure_ascii=False) + "\n")
    stream.flush()


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
