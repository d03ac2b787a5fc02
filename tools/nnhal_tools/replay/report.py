"""Reports of a replay: tables for the terminal, an HTML page with curves, and JSON. JUnit is that of the harness."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnhal.recording.comparison import Agreement
from nnhal_tools import templates
from nnhal_tools.bench.page import SIZE, Plot, draw
from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.run_info import RunInfo
from nnhal_tools.replay.summary import ModelSummary
from nnhal_tools.tables import DIGITS, make_table

if TYPE_CHECKING:
    from rich.table import Table

_MAX_PLOTS = 12
_MAX_FAILURES = 200
"""Rows of failures on a page. JSON has all."""


def summary_table(summaries: Collection[ModelSummary]) -> "Table":
    """Return a table with a row for each model, and the medians of its durations."""
    numbers = [outcome.value.partition(" ")[0] for outcome in Agreement]
    times = ("recorded", "now", "ratio")
    table = make_table("model", *numbers, *times, right=(*numbers, *times))
    for summary in summaries:
        recorded, replayed = summary.quantiles()
        durations = [f"{recorded[0]:,.0f} us", f"{replayed[0]:,.0f} us", f"{summary.slowdown:.2f}"] if recorded else []
        counts = [str(summary.outcomes[outcome] or "") for outcome in Agreement]
        table.add_row(summary.digest[:DIGITS], *counts, *durations)
    return table


def write_json(path: Path, info: RunInfo, summaries: Collection[ModelSummary], results: Sequence[Result]) -> None:
    """Write the report.

    Raises:
        OSError: the file cannot be written.
    """
    names = ("name", "path", "status", "check", "reason", "stimulus", "expected", "got", "seconds")
    report = info.facts | {
        "models": [summary.to_json() for summary in summaries],
        "records": [{name: getattr(result, name) for name in names} for result in results],
    }
    path.write_text(json.dumps(report, indent=1) + "\n")


def write_html(
    path: Path, info: RunInfo, about: str, summaries: Collection[ModelSummary], results: Sequence[Result]
) -> None:
    """Write the page. It loads nothing from elsewhere.

    Raises:
        OSError: the file cannot be written.
    """
    measured = [summary for summary in summaries if summary.recorded_us][:_MAX_PLOTS]
    failures = [result for result in results if result.status is Status.FAILED]
    page = templates.render(
        "replay.html.j2",
        title=f"{len(failures)} of {len(results)} differ – replay on {info.target}",
        about=f"{info.describe()} · {about}",
        plots=[_plot(summary) for summary in measured],
        size=SIZE,
        summaries=summaries,
        outcomes=tuple(Agreement),
        failures=failures[:_MAX_FAILURES],
        data=[summary.to_json() for summary in summaries],
    )
    path.write_text(page, encoding="utf-8")


def _plot(summary: ModelSummary) -> Plot:
    """Return the durations of a model by the part of its executions that are not longer."""
    shares = [*range(0, 100, 5), 99]  # the longest one would hide the others
    series = {
        label: [
            (float(share), float(value), f"{share} % take at most {value:,.0f} us")
            for share, value in zip(shares, np.percentile(durations, shares), strict=True)
        ]
        for label, durations in (("recorded", summary.recorded_us), ("now", summary.replayed_us))
    }
    return draw(f"model {summary.digest[:DIGITS]}", "% of the executions", "us", series)
