"""Picture of a simulation: its state in each second, as SVG."""

from collections.abc import Mapping, Sequence
from html import escape

from tests.benchmark.simulation.fleet import History

_WIDTH, _PANEL, _LEFT, _TOP, _GAP = 800, 110, 70, 24, 34
_STYLE = (
    "text{font:12px sans-serif;fill:#555}.line{fill:none;stroke-width:1.5}.axis{stroke:#bbb;stroke-width:1}"
    ".event{stroke:#c33;stroke-dasharray:4 3}.a{stroke:#2a6fb0}.b{stroke:#d9822b}"
)


def draw(history: History, events: Mapping[float, str]) -> str:
    """Return a picture with a panel for each quantity.

    Args:
        history: state in each second.
        events: things that happened, by time in seconds.
    """
    panels: list[tuple[str, list[Sequence[float]]]] = [
        ("hosts that run", [history.hosts]),
        ("sessions of a host: mean (blue), most (orange)", [history.mean_sessions, history.most_sessions]),
        ("executions per second", [history.answers]),
        ("99th percentile of the latency of executions in s", [history.slowest]),
    ]
    end = history.times[-1]
    height = _TOP + len(panels) * (_PANEL + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, lines) in enumerate(panels):
        parts += _panel(_TOP + number * (_PANEL + _GAP), title, history.times, lines)
    for at, text in events.items():
        x = _x(at, end)
        parts.append(f'<line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _GAP}"/>')
        parts.append(f'<text x="{x + 4:.1f}" y="{height - _GAP + 26}">{escape(text)}</text>')
    parts.append(f'<text x="{_WIDTH - 10}" y="{height - 8}" text-anchor="end">{end:.0f} s</text></svg>')
    return "\n".join(parts) + "\n"


def _x(at: float, end: float) -> float:
    return _LEFT + at / end * (_WIDTH - _LEFT - 10)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _panel(top: float, title: str, times: Sequence[float], lines: Sequence[Sequence[float]]) -> list[str]:
    most = max(max(values) for values in lines) or 1.0
    bottom = top + _PANEL
    parts = [
        f'<text x="{_LEFT}" y="{top - 6}">{escape(title)}</text>',
        f'<path class="axis" fill="none" d="M{_LEFT} {top}V{bottom}H{_WIDTH - 10}"/>',
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{_number(most)}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
    ]
    for name, values in zip("ab", lines, strict=False):
        points = " ".join(
            f"{_x(at, times[-1]):.1f},{bottom - value / most * _PANEL:.1f}"
            for at, value in zip(times, values, strict=True)
        )
        parts.append(f'<polyline class="line {name}" points="{points}"/>')
    return parts
