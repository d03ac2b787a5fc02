"""Screen of `nnhal top`: a snapshot of a service, and the rates since the one before, as lines that fit a terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnhal.admin.quantiles import quantile
from nnhal_tools.cli.admin.columns import cells
from nnhal_tools.cli.console import format_age, format_bytes, format_seconds, printable
from nnhal_tools.tables import counted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


@dataclass(frozen=True)
class Rates:
    """Changes between two snapshots.

    Attributes:
        executions_s: executions a second; None if there is no earlier snapshot.
        failed_s: failed ones a second; None if there is no earlier snapshot.
        p50_s, p99_s: quantiles 0.5 and 0.99 of the durations in seconds; None if nothing was executed.
        uses_s: executions a second of each model, by id.
    """

    executions_s: float | None
    failed_s: float | None
    p50_s: float | None
    p99_s: float | None
    uses_s: Mapping[str, float]


def rates_between(earlier: Mapping[str, Any] | None, later: Mapping[str, Any]) -> Rates:
    """Return the changes between two snapshots. Without an earlier one, quantiles are over the whole time."""
    load = later["load"]
    bounds, durations = load["bounds_s"], load["durations"]
    if earlier is None:
        return Rates(None, None, quantile(bounds, durations, 0.5), quantile(bounds, durations, 0.99), {})
    seconds = max(later["at"] - earlier["at"], 1e-3)
    before = earlier["load"]
    counts = [max(0, new - old) for new, old in zip(durations, before["durations"], strict=True)]
    uses = {model["id"]: model["uses"] for model in earlier["models"]}
    return Rates(
        max(0, load["executions"] - before["executions"]) / seconds,
        max(0, load["rejected"] - before["rejected"]) / seconds,
        quantile(bounds, counts, 0.5),
        quantile(bounds, counts, 0.99),
        {model["id"]: max(0, model["uses"] - uses.get(model["id"], 0)) / seconds for model in later["models"]},
    )


Key = Callable[[Mapping[str, Any], Rates], Any]

SORTS: Mapping[str, Key] = {
    "calls": lambda model, rates: (rates.uses_s.get(model["id"], 0.0), model["uses"]),
    "memory": lambda model, rates: model["memory_bytes"],
    "latency": lambda model, rates: model["longest_s"],
    "age": lambda model, rates: -model["prepared_at"],
}
"""Orders of the models, the largest value first."""
KEYS = "q quit  c calls  m memory  l latency  a age  p pause"
_DIGITS = 8
_FLEXIBLE = {"name": 2, "backends": 1, "state": 1, "client": 1}
"""Columns that are cut off where a row does not fit, and the parts that they get of the rest of its width."""
_HEADER_LINES = 4
_MIN_ROWS = 3
_STATE_STYLES = {"serving": "green", "ready": "green", "skipped": "dim"}


def render_screen(
    snapshot: Mapping[str, Any], rates: Rates, sort: str, *, height: int | None, note: str = ""
) -> "RenderableType":
    """Return the screen of a snapshot, with the rates since the snapshot before.

    `sort` is a key of SORTS. Without a height, everything is shown. The note is the last line, unless it is empty.
    """
    from rich.console import Group

    models = sorted(snapshot["models"], key=lambda model: SORTS[sort](model, rates), reverse=True)
    sessions = sorted(snapshot["sessions"], key=lambda each: (each["calls"], each["memory_bytes"]), reverse=True)
    workers, warnings, now = snapshot["workers"], snapshot["warnings"][-2:], snapshot["at"]
    rows = [len(workers), len(models), len(sessions)]
    if height is not None:
        lines = height - _HEADER_LINES - len(warnings) - bool(note) - len(rows)
        rows = _share_lines(rows, lines)
    parts: list[RenderableType] = [
        *_header(snapshot, rates),
        _workers(workers[: rows[0]], now),
        _models(models[: rows[1]], rates, len(models), sort, now),
        _sessions(sessions[: rows[2]], len(sessions), now),
        *(_line(f"{each['level']} {each['event']} {each['text']}", "yellow") for each in warnings),
    ]
    if note:
        parts.append(_line(note, "dim"))
    return Group(*parts)


def _share_lines(wanted: Sequence[int], lines: int) -> list[int]:
    """Return the number of rows of each table: all that it wants, or its share."""
    given = [min(count, _MIN_ROWS) for count in wanted]
    while sum(given) < lines and any(have < count for have, count in zip(given, wanted, strict=True)):
        short = [number for number, count in enumerate(wanted) if given[number] < count]
        given[min(short, key=lambda number: given[number])] += 1
    while sum(given) > max(lines, 0):
        given[max(range(len(given)), key=lambda number: given[number])] -= 1
    return given


def _header(snapshot: Mapping[str, Any], rates: Rates) -> list["RenderableType"]:
    load, cache = snapshot["load"], snapshot["cache"]
    style = _STATE_STYLES.get(snapshot["state"], "yellow")
    since = format_age(snapshot["at"] - snapshot["started_at"])
    backends = [backend for device in snapshot["devices"] for backend in device["backends"]]
    ready = dict.fromkeys(each["id"] for each in backends if each["state"] == "ready")
    others = dict.fromkeys(
        f"{each['id'] or each['origin']} {each['state']}" for each in backends if each["id"] not in ready
    )
    return [
        _line(
            f"nnhal {snapshot['version']}  {snapshot['state']}  up {since}  {', '.join(snapshot['addresses'])}", style
        ),
        _line(
            f"executions {_rate(rates.executions_s)}, {_rate(rates.failed_s)} failed  "
            f"p50 {format_seconds(rates.p50_s or 0)} p99 {format_seconds(rates.p99_s or 0)}  "
            f"total {load['executions']}, {load['rejected']} failed"
        ),
        _line(
            f"running {load['running']}  queued {load['queued']}  preparing {load['preparing']}  "
            f"cache {counted(len(cache['entries']), 'model')}, {format_bytes(cache['size'])}, {_hit_rate(cache)}  "
            f"quarantine {len(snapshot['quarantine'])}"
        ),
        _line(f"backends {', '.join([*ready, *others])}"),
    ]


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}/s" if value < 100 else f"{value:.0f}/s"


def _hit_rate(cache: Mapping[str, Any]) -> str:
    lookups = cache["hits"] + cache["misses"]
    return f"{cache['hits'] / lookups:.0%} hits" if lookups else "no lookups"


def _line(text: str, style: str = "") -> "RenderableType":
    from rich.text import Text

    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _workers(workers: Sequence[Mapping[str, Any]], now: float) -> "Table":
    headings = ("worker", "pid", "state", "sessions", "running", "queued", "memory", "threads", "restarts")
    return _table(headings, cells(workers, headings, now))


def _models(models: Sequence[Mapping[str, Any]], rates: Rates, count: int, sort: str, now: float) -> "Table":
    has_names = any(each["model_name"] for each in models)
    names, best = (["name"], []) if has_names else ([], ["best"])  # 80 columns have no room for both
    drift = ["drift"] if any(each["shadow_compared"] for each in models) else []
    headings = ["model", "digest", *names, "backends", "rate", *drift, "uses", *best, "longest", "memory"]
    rows = [
        {
            **each,
            "digest": each["digest"][:_DIGITS],
            "backends": "+".join(each["backends"]),
            "rate": _rate(rates.uses_s.get(each["id"])),
        }
        for each in models
    ]
    marked = {"calls": "rate", "memory": "memory", "latency": "longest"}.get(sort)
    titles = [_heading("model", len(models), count), *(f"{each}*" if each == marked else each for each in headings[1:])]
    return _table(titles, cells(rows, headings, now))


def _sessions(sessions: Sequence[Mapping[str, Any]], count: int, now: float) -> "Table":
    headings = ("session", "identity", "client", "age", "calls", "models", "memory")
    titles = [_heading("session", len(sessions), count), *headings[1:]]
    return _table(titles, cells(sessions, headings, now))


def _heading(noun: str, shown: int, count: int) -> str:
    return noun if shown == count else f"{noun} {shown}/{count}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
    """Return a table without lines. Its flexible columns are cut off where a row does not fit."""
    from rich.table import Table

    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    texts = max(number for number, heading in enumerate(headings) if heading in _FLEXIBLE)
    for number, heading in enumerate(headings):
        justify = "left" if number <= texts else "right"
        ratio = _FLEXIBLE.get(heading)
        table.add_column(heading.upper(), no_wrap=True, overflow="ellipsis", justify=justify, ratio=ratio)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(printable, row))
    return table
