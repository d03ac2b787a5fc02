"""Page with the curves of a load test: latency against throughput, and both against the load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log10
from pathlib import Path

from nnhal_tools import templates
from nnhal_tools.bench.results import LoadResult

WIDTH, HEIGHT = 560, 320
"""Size of a plot in pixels, with its margins."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 28, 28, 44
_HUES = (214, 24, 152, 280, 350, 190, 60, 110)
_TICKS = 5
SIZE = {"width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": WIDTH - _RIGHT, "bottom": HEIGHT - _BOTTOM}
"""Measures of a plot for the template."""


@dataclass(frozen=True)
class _Curve:
    """One curve: its label, its color, its points in pixels, and their texts."""

    label: str
    hue: int
    points: Sequence[tuple[float, float]]
    texts: Sequence[str]


@dataclass(frozen=True)
class Plot:
    """A plot with axes from zero."""

    title: str
    x_label: str
    y_label: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    curves: Sequence[_Curve]


_Value = Callable[[LoadResult], float]
_Point = tuple[float, float, str]
"""Coordinates of a point, and its text."""


def write_html(path: Path, model: str, results: Sequence[LoadResult]) -> None:
    """Write the page to a file. Results without a successful call are left out."""
    shown = [result for result in results if result.latency_us]
    load = "arriving calls/s" if any(result.level.rate for result in shown) else "clients"
    plots = [
        _plot("Median latency against throughput", shown, "calls/s", "us", _throughput, _latency("p50")),
        _plot("99th percentile against throughput", shown, "calls/s", "us", _throughput, _latency("p99")),
        _plot(f"Throughput against {load}", shown, load, "calls/s", _load, _throughput),
        _plot(f"Processor time per call against {load}", shown, load, "us", _load, _processor_time),
    ]
    data = [result.to_json() for result in results]
    page = templates.render(
        "bench.html.j2", title=f"{model}: load test", plots=plots, size=SIZE, results=shown, data=data
    )
    path.write_text(page, encoding="utf-8")


def _throughput(result: LoadResult) -> float:
    return result.calls_per_s.median


def _load(result: LoadResult) -> float:
    return result.level.rate or result.level.clients


def _processor_time(result: LoadResult) -> float:
    return result.client_us + (result.service_us or 0.0)


def _latency(name: str) -> _Value:
    return lambda result: result.latency_us[name]


def _plot(title: str, results: Sequence[LoadResult], x_label: str, y_label: str, x: _Value, y: _Value) -> Plot:
    series: dict[str, list[_Point]] = {}
    for each in results:
        text = f"{each.level.text}: {x(each):,.0f} {x_label}, {y(each):,.0f} {y_label}"
        series.setdefault(each.subject.label, []).append((x(each), y(each), text))
    return draw(title, x_label, y_label, series)


def draw(title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[_Point]]) -> Plot:
    """Return a plot with a curve for each series of points."""
    drawn = [point for own in series.values() for point in own]
    x_max, y_max = (
        _round_up(max(values, default=1.0)) for values in ([x for x, _, _ in drawn], [y for _, y, _ in drawn])
    )
    curves = []
    for number, (label, own) in enumerate(series.items()):
        points = [(_x_pixel(x / x_max), _y_pixel(y / y_max)) for x, y, _ in own]
        texts = [f"{label}, {text}" for _, _, text in own]
        curves.append(_Curve(label, _HUES[number % len(_HUES)], points, texts))
    steps = [step / _TICKS for step in range(_TICKS + 1)]
    return Plot(
        title,
        x_label,
        y_label,
        [(_x_pixel(step), f"{step * x_max:,.10g}") for step in steps],
        [(_y_pixel(step), f"{step * y_max:,.10g}") for step in steps],
        curves,
    )


def _round_up(value: float) -> float:
    """Return the next larger number with two digits that can be divided by the number of ticks."""
    unit = 10 ** max(0, ceil(log10(max(value, 1))) - 2) * _TICKS
    return ceil(value / unit) * unit or 1.0


def _x_pixel(share: float) -> float:
    return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)


def _y_pixel(share: float) -> float:
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _BOTTOM - _TOP), 1)
