"""Screen of `nnhal top`: a snapshot of a service as lines that fit a terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnhal_tools.cli.admin.rates import Rates
from nnhal_tools.cli.admin.units import counted, format_age, format_bytes, format_seconds, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

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
_HEADER_LINES = 4
_MIN_ROWS = 3
_STATE_STYLES = {"serving": "green", "ready": "green", "skipped": "dim"}


def render_screen(
    console: "Console", snapshot: Mapping[str, Any], rates: Rates, sort: str, *, height: int | None, note: str = ""
) -> "RenderableType":
    """Return the screen of a snapshot.

    Args:
        console: tells the width.
        snapshot: the state.
        rates: what happened since the snapshot before.
        sort: key of SORTS.
        height: number of lines; None to show everything.
        note: text of the last line; "" for none.
    """
    from rich.console import Group

    models = sorted(snapshot["models"], key=lambda model: SORTS[sort](model, rates), reverse=True)
    sessions = sorted(snapshot["sessions"], key=lambda each: (each["calls"], each["memory_bytes"]), reverse=True)
    workers, warnings = snapshot["workers"], snapshot["warnings"][-2:]
    rows = [len(workers), len(models), len(sessions)]
    if height is not None:
        lines = height - _HEADER_LINES - len(warnings) - bool(note) - len(rows)
        rows = _share_lines(rows, lines)
    parts: list[RenderableType] = [
        *_header(snapshot, rates),
        _workers(console, workers[: rows[0]]),
        _models(console, models[: rows[1]], rates, len(models), sort),
        _sessions(console, sessions[: rows[2]], len(sessions), snapshot["at"]),
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


def _workers(console: "Console", workers: Sequence[Mapping[str, Any]]) -> "Table":
    rows = [
        (
            str(each["slot"]),
            str(each["pid"]),
            each["state"],
            str(each["sessions"]),
            str(each["load"]["running"]),
            str(each["load"]["queued"]),
            format_bytes(each["memory_bytes"]),
            str(each["threads"]),
            str(each["restarts"]),
        )
        for each in workers
    ]
    headings = ("WORKER", "PID", "STATE", "SESSIONS", "RUNNING", "QUEUED", "MEMORY", "THREADS", "RESTARTS")
    return _table(headings, rows, flexible=2)


def _models(console: "Console", models: Sequence[Mapping[str, Any]], rates: Rates, count: int, sort: str) -> "Table":
    rows = [
        (
            each["id"],
            each["digest"][:_DIGITS],
            "+".join(each["backends"]),
            _rate(rates.uses_s.get(each["id"])),
            str(each["uses"]),
            format_seconds(each["best_s"]),
            format_seconds(each["longest_s"]),
            format_bytes(each["memory_bytes"]),
        )
        for each in models
    ]
    headings = (
        _heading("MODEL", len(models), count),
        "DIGEST",
        "BACKENDS",
        "RATE",
        "USES",
        "BEST",
        "LONGEST",
        "MEMORY",
    )
    marked = {"calls": "RATE", "memory": "MEMORY", "latency": "LONGEST"}.get(sort)
    return _table([f"{each}*" if each == marked else each for each in headings], rows, flexible=2)


def _sessions(console: "Console", sessions: Sequence[Mapping[str, Any]], count: int, now: float) -> "Table":
    rows = [
        (
            each["id"],
            each["identity"],
            each["client"],
            format_age(now - each["opened_at"]),
            str(each["calls"]),
            str(each["models"]),
            format_bytes(each["memory_bytes"]),
        )
        for each in sessions
    ]
    return _table(
        (_heading("SESSION", len(sessions), count), "IDENTITY", "CLIENT", "AGE", "CALLS", "MODELS", "MEMORY"),
        rows,
        flexible=2,
    )


def _heading(noun: str, shown: int, count: int) -> str:
    return noun if shown == count else f"{noun} {shown}/{count}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], flexible: int) -> "Table":
    """Return a table without lines. Its flexible column is cut off where a row does not fit."""
    from rich.table import Table

    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for number, heading in enumerate(headings):
        justify = "left" if number <= flexible else "right"
        ratio = 1 if number == flexible else None
        table.add_column(heading, no_wrap=True, overflow="ellipsis", justify=justify, ratio=ratio)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(printable, row))
    return table
