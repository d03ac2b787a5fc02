"""Ids of all checks, with a line of description each, from `ids.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Check:
    """Check id with its requirement. `suite`: "" for an allowance."""

    id: str
    suite: str
    description: str


GROUPS = tomllib.loads(Path(__file__).with_name("ids.toml").read_text("utf-8"))
"""Groups of ids with a common prefix: title, suite and descriptions by id."""

CHECKS = {
    id_: Check(id_, group.get("suite", ""), description)
    for group in GROUPS.values()
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
