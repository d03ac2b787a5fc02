"""Markdown of generated documents."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

Documents = Mapping[Path, str]
"""Text of each document, by its path below docs/."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, followed by an empty line."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def paragraph(text: str) -> list[str]:
    """Return a text as wrapped lines, followed by an empty line."""
    return [*textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False), ""]


def escape(text: str) -> str:
    """Escape the characters of plain text that have a meaning in a table or in HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def code(text: str) -> str:
    """Return a text as inline code for a table."""
    quotes = "``" if "`" in text else "`"
    return f"{quotes}{text}{quotes}".replace("|", "\\|")


def stale(documents: Documents, folder: Path = DOCS) -> list[Path]:
    """Return the documents whose file is missing or has another text."""
    return [path for path, text in documents.items() if not (folder / path).is_file() or _read(folder / path) != text]


def write(documents: Documents, folder: Path = DOCS) -> None:
    """Write every document."""
    for path, text in documents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
