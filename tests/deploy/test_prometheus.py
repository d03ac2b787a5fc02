"""Alerts and dashboard: they are valid, fire as they should, and name metrics and labels that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnhal_service.metrics.catalog import METRICS, Kind

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
RULE_TESTS = RULES.with_name("alerts.test.yml")
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))

_SELECTOR = re.compile(r"(nnhal_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_OF_SCRAPES = {"instance", "job"}
"""Labels that Prometheus adds."""


def samples() -> dict[str, set[str]]:
    """Return the labels of each sample in a scrape, by its name."""
    names: dict[str, set[str]] = {}
    for metric in METRICS.values():
        labels = set(metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            names[f"{metric.name}_bucket"] = {*labels, "le"}
            names[f"{metric.name}_sum"] = names[f"{metric.name}_count"] = labels
        else:
            names[metric.sample] = labels
    return names


def problems(expression: str) -> Iterator[str]:
    """Yield what is wrong with an expression."""
    known, used = samples(), set[str]()
    for name, matchers in _SELECTOR.findall(expression):
        if name not in known:
            yield f"there is no metric {name}"
            continue
        used |= known[name]
        for label in _MATCHER.findall(matchers):
            if label not in known[name] | _OF_SCRAPES:
                yield f"{name} has no label {label}"
    if not used and "nnhal_" not in expression:
        yield f"{expression!r} uses no metric"
    for labels in _GROUPING.findall(expression):
        for label in map(str.strip, labels.split(",")):
            if label not in used | _OF_SCRAPES:
                yield f"no metric of {expression!r} has the label {label}"


def test_problems_are_found() -> None:
    assert list(problems("sum(nnhal_nothing_total)"))
    assert list(problems('nnhal_sessions{colour="red"}'))
    assert list(problems("sum by (colour) (nnhal_sessions)"))
    assert list(problems("nnhal_call_duration_seconds"))
    assert not list(problems('sum by (identity, instance) (nnhal_sessions{instance="a"})'))


def rule_expressions() -> list[str]:
    blocks = re.findall(r"^ +expr: (?:\|\n((?: {10,}.*\n)+)|(.*))", RULES.read_text(), re.MULTILINE)
    return [block or line for block, line in blocks]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dashboard.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def test_rules_use_existing_metrics_and_labels() -> None:
    expressions = rule_expressions()
    assert len(expressions) == RULES.read_text().count("- alert:")
    assert [problem for expression in expressions for problem in problems(expression)] == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_dashboard_uses_existing_metrics_and_labels(dashboard: Path) -> None:
    targets = [target for panel in panels(dashboard) for target in panel["targets"]]
    assert len(targets) >= len(panels(dashboard)) > 10
    assert [problem for target in targets for problem in problems(target["expr"])] == []
    legends = [set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) for target in targets]
    for target, legend in zip(targets, legends, strict=True):
        grouped = {name.strip() for names in _GROUPING.findall(target["expr"]) for name in names.split(",")}
        assert legend <= grouped, target


def test_dashboards_show_every_metric() -> None:
    text = "".join(path.read_text() for path in DASHBOARDS)
    hidden = [metric.sample for metric in METRICS.values() if f"{metric.name}" not in text]
    assert hidden == []


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[path.stem for path in DASHBOARDS])
def test_panels_do_not_overlap(dashboard: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard.read_text())["panels"]:
        position = panel["gridPos"]
        columns = range(position["x"], position["x"] + position["w"])
        cells = {(x, y) for x in columns for y in range(position["y"], position["y"] + position["h"])}
        assert not cells & taken, panel["title"]
        assert max(columns) < 24
        taken |= cells


def test_every_alert_is_documented() -> None:
    running = (ROOT / "docs" / "running.md").read_text()
    for alert, summary in re.findall(r"- alert: (\w+)[\s\S]*?summary: (.*)", RULES.read_text()):
        assert f"| `{alert}` | {summary} |" in running


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing: install Debian's prometheus")
@pytest.mark.parametrize("arguments", [("check", "rules", str(RULES)), ("test", "rules", str(RULE_TESTS))])
def test_promtool_accepts_the_rules(arguments: tuple[str, ...]) -> None:
    run = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_alert_is_tested() -> None:
    tests = RULE_TESTS.read_text()
    for alert in re.findall(r"- alert: (\w+)", RULES.read_text()):
        assert tests.count(f"alertname: {alert}") == 2, f"{alert} must fire, and must stay quiet"
