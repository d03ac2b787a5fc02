"""The graph of a model as an HTML page, colored by backend. A click on an operation shows its details."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnhal.types import Model
from nnhal_tools import templates
from nnhal_tools.explain.explanation import Explanation, time_text
from nnhal_tools.explain.layout import GraphLayout, layout_graph

WIDTH, HEIGHT = 190, 40
"""Size of a node in pixels."""
_GAP_X, _GAP_Y = 26, 30
_MARGIN = 20

_HUES = (152, 214, 32, 280, 190, 330)
"""Colors of the backends, in their order. Operations without a backend are red."""


def write_html(path: Path, name: str, model: Model, explanation: Explanation) -> None:
    """Write the page to a file.

    Args:
        path: the file to write.
        name: the name of the model.
        model: the model.
        explanation: the explanation of the model.

    Raises:
        OSError: the file is not writable.
    """
    path.write_text(render_page(name, model, explanation), encoding="utf-8")


def render_page(name: str, model: Model, explanation: Explanation) -> str:
    """Return the text of the page."""
    rows = explanation.operations
    backends = list(dict.fromkeys(row["backend"] for row in rows if row["backend"]))
    styles = {"": "unsupported", **{backend: f"backend{i}" for i, backend in enumerate(backends)}}
    counts = {backend: sum(row["backend"] == backend for row in rows) for backend in (*backends, "")}
    drawing = _lay_out(model)
    return templates.render(
        "explain.html.j2",
        title=name,
        about=f"{_count(len(rows), 'operation')} in {_count(len(explanation.partitions), 'partition')}",
        times=explanation.times.text() if explanation.times else "",
        hues=[_HUES[i % len(_HUES)] for i in range(len(backends))],
        legend=[
            {"name": backend or "not supported", "style": styles[backend], "count": count}
            for backend, count in counts.items()
            if count
        ],
        width=int(drawing.columns * (WIDTH + _GAP_X)) - _GAP_X + 2 * _MARGIN,
        height=drawing.layers * (HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN,
        node_width=WIDTH,
        node_height=HEIGHT,
        paths=[_path([_center(point) for point in route]) for route in drawing.routes],
        nodes=[_node(row, drawing.positions[i], styles[row["backend"]]) for i, row in enumerate(rows)],
        data=[{**row, "time": _time(row, explanation)} for row in rows],
    )


def _lay_out(model: Model) -> GraphLayout:
    operations = model.main.operations
    writers = {o: i for i, operation in enumerate(operations) for o in operation.outputs}
    edges = [
        (writers[o], i)
        for i, operation in enumerate(operations)
        for o in dict.fromkeys(operation.inputs)
        if writers.get(o, i) < i
    ]
    return layout_graph(len(operations), edges)


def _time(row: Mapping[str, Any], explanation: Explanation) -> str:
    """Return the time of an operation, or that of its partition if the backend does not measure single operations."""
    if "time_us" in row or row["partition"] is None:
        return time_text(row)
    partition_time = time_text(explanation.partitions[row["partition"]])
    return f"{partition_time} with its whole partition" if partition_time else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return an SVG path of curves that leave and arrive vertically. It crosses layers in between straight down."""
    half = HEIGHT / 2
    x, y = points[0]
    text = f"M{x:g} {y + half:g}"
    for number, (next_x, next_y) in enumerate(points[1:], 1):
        top, bottom = y + half, next_y - half
        middle = (top + bottom) / 2
        text += f" C{x:g} {middle:g} {next_x:g} {middle:g} {next_x:g} {bottom:g}"
        if number < len(points) - 1:
            text += f" V{next_y + half:g}"
        x, y = next_x, next_y
    return text


def _center(position: tuple[float, int]) -> tuple[float, float]:
    """Return the center in pixels of a position (column, layer)."""
    column, layer = position
    return (
        _MARGIN + column * (WIDTH + _GAP_X) + WIDTH / 2,
        _MARGIN + layer * (HEIGHT + _GAP_Y) + HEIGHT / 2,
    )


def _node(row: Mapping[str, Any], position: tuple[float, int], style: str) -> dict[str, Any]:
    """Return the variables of a node in the template."""
    x, y = _center(position)
    reasons = "; ".join(f"{refusal['backend']}: {refusal['reason']}" for refusal in row["refusals"])
    time = f", {time_text(row)}" if "time_us" in row else ""
    return {
        "operation": row["operation"],
        "type": row["type"],
        "shape": row["outputs"][0].partition(" ")[2] if row["outputs"] else "",
        "tooltip": f"{row['backend'] or 'not supported'}{time}{' — ' + reasons if reasons else ''}",
        "style": style,
        "x": x,
        "y": y,
        "left": x - WIDTH / 2,
        "top": y - HEIGHT / 2,
    }
