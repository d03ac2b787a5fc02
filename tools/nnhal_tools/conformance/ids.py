"""Ids of all checks, with a line of description each, from `ids.toml`.

`python -m nnhal_tools.conformance.ids --write FILE` writes the table between the markers of a document.
"""

import argparse
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- ids: made by python -m nnhal_tools.conformance.ids -->"
END = "<!-- end of ids -->"


@dataclass(frozen=True)
class Check:
    """Check id with its requirement. `suite`: "" for an allowance."""

    id: str
    suite: str
    description: str


_GROUPS = tomllib.loads(Path(__file__).with_name("ids.toml").read_text("utf-8"))
"""Groups of ids with a common prefix: title, suite and descriptions by id."""

CHECKS = {
    id_: Check(id_, group.get("suite", ""), description)
    for group in _GROUPS.values()
    for id_, description in group["checks"].items()
}
"""All ids."""

SUITES = tuple(dict.fromkeys(check.suite for check in CHECKS.values() if check.suite))
"""Names of the suites, in the order of the groups."""


def validate_id(check: str) -> str:
    """Return an id if it exists.

    Raises:
        ValueError: the id is unknown.
    """
    if check not in CHECKS:
        raise ValueError(f"unknown check {check!r}")
    return check


def as_markdown() -> str:
    """Return a table for each group of ids."""
    lines = []
    for name, group in _GROUPS.items():
        suite = f" (suite `{group['suite']}`)" if "suite" in group else ""
        lines += [f"### {name}: {group['title']}{suite}", "", "| ID | Requirement |", "|---|---|"]
        lines += [f"| {id_} | {description} |" for id_, description in group["checks"].items()]
        lines.append("")
    return "\n".join(lines)


def with_table(document: str) -> str:
    """Return a document with the tables between its markers.

    Raises:
        ValueError: the document lacks a marker.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{as_markdown()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables into a document."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    path: Path = parser.parse_args(arguments).write
    path.write_text(with_table(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
