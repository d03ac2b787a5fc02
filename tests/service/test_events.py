"""docs/logs.md lists each event of the log with its severities."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {"event", "RepeatedEvent"}
ROW = re.compile(r"^\| `([a-z-]+)` \| ([A-Z]+|as in the line) \| \S.*\.( \|)$", re.MULTILINE)


def logged() -> dict[str, set[str]]:
    """Return the severities of each event in the source."""
    events: dict[str, set[str]] = defaultdict(set, {"audit": {"INFO"}})
    for path in (ROOT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in FUNCTIONS:
                level = ast.unparse(node.args[1]).removeprefix("logging.") if len(node.args) > 1 else "INFO"
                events[str(node.args[0].value)].add(level if level.isupper() else "as in the line")
    return dict(events)


def documented() -> list[tuple[str, str]]:
    return [(name, level) for name, level, _ in ROW.findall((ROOT / "docs" / "logs.md").read_text())]


def test_all_events_are_documented() -> None:
    assert {name: {level} for name, level in documented()} == logged()


def test_events_are_sorted() -> None:
    names = [name for name, _ in documented()]
    assert names == sorted(set(names)) and len(names) > 40
