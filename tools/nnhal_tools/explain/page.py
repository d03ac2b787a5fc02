"""The graph of a model as an HTML page, colored by backend. A click on an operation shows its details.

Without a placement, the page has the graph of the file's operators, colored by what became of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnhal.tflite.report import ImportOutcome
from nnhal.types import Model
from nnhal_tools import templates
from nnhal_tools.explain.explanation import Explanation, backend_text, time_text
from nnhal_tools.explain.imported import tensor_text
from nnhal_tools.explain.layout import Edge, layout_graph
from nnhal_tools.explain.model_explanation import ModelExplanation, become_text

WIDTH, HEIGHT = 190, 40
"""Size of a node in pixels."""
_GAP_X, _GAP_Y = 26, 30
_MARGIN = 20
_MAX_NODE_TEXT = 26
"""Longest name that fits into a node."""

_HUES = (152, 214, 32, 280, 190, 330, 60, 250)
"""Colors of the backends or outcomes, in their order. What cannot run is red."""

_UNSUPPORTED = ("not supported", ImportOutcome.REFUSED)

Fact = tuple[str, Sequence[str]]
"""A heading of the details, and its lines."""


@dataclass(frozen=True)
class _Node:
    """An operation of the model or an operator of the file, as it is drawn.

    Attributes:
        title: its number and type.
        caption: the shape of its first output.
        kind: the backend or the outcome, which decides the color.
    """

    title: str
    caption: str
    kind: str
    tooltip: str
    facts: Sequence[Fact]


def render_page(name: str, model: Model | None, explanation: ModelExplanation) -> str:
    """Return the text of the page. There is no model if the file cannot be imported."""
    imported, placed = explanation.imported, explanation.placed
    if model is None or placed is None:
        nodes, edges = _operator_nodes(imported.operators), _operator_edges(imported.operators)
    else:
        nodes = [_operation_node(row, placed, imported.operators) for row in placed.operations]
        edges = _operation_edges(model)
    kinds = list(dict.fromkeys(node.kind for node in nodes))
    others = [kind for kind in kinds if kind not in _UNSUPPORTED]
    styles = {kind: f"backend{others.index(kind)}" if kind in others else "unsupported" for kind in kinds}
    drawing = layout_graph(len(nodes), edges)
    return templates.render(
        "explain.html.j2",
        title=name,
        about=explanation.summary(),
        times=placed.times.text() if placed and placed.times else "",
        ends=[
            {"kind": kind, "tensors": [tensor_text(row) for row in rows]}
            for kind, rows in (("inputs", imported.inputs), ("outputs", imported.outputs))
        ],
        hues=[_HUES[i % len(_HUES)] for i in range(len(others))],
        legend=[
            {"name": kind, "style": styles[kind], "count": sum(node.kind == kind for node in nodes)}
            for kind in (*others, *(kind for kind in kinds if kind not in others))
        ],
        graph="operations of the model, by backend" if model and placed else "operators of the file, by outcome",
        width=max(int(drawing.columns * (WIDTH + _GAP_X)) - _GAP_X, 0) + 2 * _MARGIN,
        height=max(drawing.layers * (HEIGHT + _GAP_Y) - _GAP_Y, 0) + 2 * _MARGIN,
        node_width=WIDTH,
        node_height=HEIGHT,
        paths=[_path([_center(point) for point in route]) for route in drawing.routes],
        max_node_text=_MAX_NODE_TEXT,
        styles=styles,
        nodes=list(zip(nodes, map(_center, drawing.positions), strict=True)),
        operators=imported.operators,
        operator_title=_operator_title,
        become_text=become_text,
        option_lines=_option_lines,
        tensor_lines=_tensor_lines,
        data=[{"title": node.title, "facts": node.facts} for node in nodes],
    )


# ---- Nodes ----------------------------------------------------------------------------------------------


def _operation_node(row: Mapping[str, Any], placed: Explanation, operators: Sequence[Mapping[str, Any]]) -> _Node:
    """Return the node of an operation of the model."""
    sources = [operator for operator in operators if row["operation"] in operator["operations"]]
    partition = "" if row["partition"] is None else f", partition {row['partition']}"
    backend = backend_text(row) + partition if row["backend"] else "no backend: it is not supported"
    facts: list[Fact] = [
        ("from", [row["origin"]]),
        ("operands read", row["inputs"]),
        ("operands written", row["outputs"]),
        ("time", [_time(row, placed)]),
        ("runs on", [backend]),
    ]
    for refusal in row["refusals"]:
        facts.append((f"{refusal['backend']} does not support it", [refusal["reason"]]))
        facts.append((f"nearest supported by {refusal['backend']}", [refusal["nearest"]]))
    for operator in sources:
        facts += _operator_facts(operator, with_title=len(sources) > 1)
    reasons = "; ".join(f"{refusal['backend']}: {refusal['reason']}" for refusal in row["refusals"])
    tooltip = (
        f"{backend_text(row)}{', ' + time_text(row) if 'time_us' in row else ''}{' — ' + reasons if reasons else ''}"
    )
    caption = row["outputs"][0][row["outputs"][0].find("[") :] if row["outputs"] else ""
    return _Node(f"{row['operation']} {row['type']}", caption, backend_text(row), tooltip, _filled(facts))


def _operator_nodes(operators: Sequence[Mapping[str, Any]]) -> list[_Node]:
    """Return the nodes of the operators of the file."""
    return [
        _Node(
            _operator_title(row),
            str(row["outputs"][0]["shape"]) if row["outputs"] else "",
            row["outcome"],
            f"{row['outcome']}: {row['reason']}",
            _filled(_operator_facts(row, with_title=False)),
        )
        for row in operators
    ]


def _operator_title(row: Mapping[str, Any]) -> str:
    return f"{'added' if row['operator'] is None else row['operator']} {row['name']}"


def _operator_facts(row: Mapping[str, Any], *, with_title: bool) -> list[Fact]:
    """Return the details of an operator of the file."""
    prefix = f"{_operator_title(row)}: " if with_title else ""
    return [
        (f"{prefix}outcome of the import", [row["outcome"], row["reason"]]),
        (f"{prefix}options", _option_lines(row)),
        (f"{prefix}tensors read", _tensor_lines(row["inputs"])),
        (f"{prefix}tensors written", _tensor_lines(row["outputs"])),
    ]


def _option_lines(row: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {value}" for name, value in row["options"].items()]


def _tensor_lines(rows: Sequence[Mapping[str, Any] | None]) -> list[str]:
    return ["omitted" if row is None else tensor_text(row) for row in rows]


def _filled(facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts that have a text."""
    return [(name, lines) for name, lines in facts if any(lines)]


def _operation_edges(model: Model) -> list[Edge]:
    operations = model.main.operations
    return _edges([operation.inputs for operation in operations], [operation.outputs for operation in operations])


def _operator_edges(operators: Sequence[Mapping[str, Any]]) -> list[Edge]:
    sides = [[[t["tensor"] for t in row[side] if t is not None] for row in operators] for side in ("inputs", "outputs")]
    return _edges(*sides)


def _edges(read: Sequence[Sequence[int]], written: Sequence[Sequence[int]]) -> list[Edge]:
    writers = {value: i for i, values in enumerate(written) for value in values}
    return [(writers[v], i) for i, values in enumerate(read) for v in dict.fromkeys(values) if writers.get(v, i) < i]


def _time(row: Mapping[str, Any], explanation: Explanation) -> str:
    """Return the time of an operation, or that of its partition if the backend does not measure single operations."""
    if "time_us" in row or row["partition"] is None:
        return time_text(row)
    partition_time = time_text(explanation.partitions[row["partition"]])
    return f"{partition_time} with its whole partition" if partition_time else ""


# ---- Drawing --------------------------------------------------------------------------------------------


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
