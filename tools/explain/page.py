"""The graph of a model as one HTML file, coloured by backend; a click on an operation shows all that is known of it.

It loads nothing from elsewhere. What comes from the model is escaped here, or becomes a text node in the script.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from nnhal.types import Model
from tools.explain.explanation import Explanation, time_text
from tools.explain.layout import Layout, layout
from tools.page_head import HEAD

WIDTH, HEIGHT = 190, 40
"""Of a node, in pixels."""
_GAP_X, _GAP_Y = 26, 30
_MARGIN = 20

_HUES = (152, 214, 32, 280, 190, 330)
"""Colours of backends, in their order; what nobody takes is red."""

_PAGE = Template(
    HEAD
    + """<style>
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #fff; --line: #d9dde5; --ink: #1a1f2b; --soft: #566074;
  --light: 88%; --edge: #9aa3b5; }
@media (prefers-color-scheme: dark) { :root { --ground: #12151b; --card: #1b1f28; --line: #343b4a; --ink: #e7eaf1;
  --soft: #a2abbd; --light: 24%; --edge: #5d677b; } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
header { padding: 1rem 1.5rem; }
h1 { margin: 0; font-size: 1.4rem; overflow-wrap: anywhere; }
p { margin: .25rem 0; color: var(--soft); }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
.key i { display: inline-block; width: .9em; height: .9em; border-radius: .2em; margin-right: .4em; }
main { display: grid; grid-template-columns: minmax(0, 1fr) minmax(18rem, 26rem); align-items: start; }
#graph { overflow: auto; max-height: calc(100vh - 8rem); text-align: center; }
aside { position: sticky; top: 0; margin: 0 1.5rem 1.5rem; padding: 1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .6rem; overflow-wrap: anywhere; }
aside h2 { margin: 0 0 .5rem; font-size: 1.1rem; }
dt { color: var(--soft); font-size: .85rem; margin-top: .5rem; }
dd { margin: 0; }
svg text { fill: var(--ink); font-size: 12px; text-anchor: middle; pointer-events: none; }
svg .where { fill: var(--soft); font-size: 10.5px; }
svg path { fill: none; stroke: var(--edge); stroke-width: 1.4; }
svg g { cursor: pointer; }
svg g:focus { outline: none; }
svg g:focus rect, svg g[aria-pressed=true] rect { stroke: var(--ink); stroke-width: 2.5; }
$colours
</style>
</head>
<body>
<header><h1>$title</h1><p>$about</p><p class="key">$key</p></header>
<main>
<div id="graph">$graph</div>
<aside id="details" aria-live="polite"><h2>Choose an operation</h2></aside>
</main>
<script type="application/json" id="data">$data</script>
<script>
"use strict";
(() => {
const rows = JSON.parse(document.getElementById("data").textContent);
const details = document.getElementById("details");
const text = (tag, content) => { const node = document.createElement(tag); node.textContent = content; return node; };
function show(node) {
  document.querySelectorAll("svg g[aria-pressed=true]").forEach(other => other.setAttribute("aria-pressed", "false"));
  node.setAttribute("aria-pressed", "true");
  const row = rows[Number(node.dataset.operation)];
  const list = document.createElement("dl");
  const add = (name, values) => values.forEach((value, i) =>
    list.append(...(i ? [] : [text("dt", name)]), text("dd", value)));
  add("from", row.origin ? [row.origin] : []);
  add("inputs", row.inputs);
  add("outputs", row.outputs);
  add("takes", row.time ? [row.time] : []);
  add("runs on", [row.backend ? row.backend + ", partition " + row.partition : "nothing: it is not supported"]);
  for (const refusal of row.refusals) {
    add(refusal.backend + " does not take it", [refusal.reason]);
    add(refusal.backend + " would take", refusal.nearest ? [refusal.nearest] : []);
  }
  details.replaceChildren(text("h2", row.operation + " " + row.type), list);
}
document.querySelectorAll("svg g").forEach(node => {
  node.addEventListener("click", () => show(node));
  node.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { show(node); event.preventDefault(); }
  });
});
})();
</script>
</body>
</html>
"""
)


def write_html(path: Path, name: str, model: Model, explained: Explanation) -> None:
    """Writes the page.

    Args:
        name: of the model.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(page(name, model, explained), encoding="utf-8")


def page(name: str, model: Model, explained: Explanation) -> str:
    """The page's text."""
    rows = explained.operations
    colours = {backend: i for i, backend in enumerate(dict.fromkeys(row["backend"] for row in rows if row["backend"]))}
    on = {backend: sum(row["backend"] == backend for row in rows) for backend in (*colours, "")}
    return _PAGE.substitute(
        title=escape(name),
        about=escape(f"{_counted(len(rows), 'operation')} in {_counted(len(explained.partitions), 'partition')}"),
        key=" ".join(
            f'<span><i class="{_class(colours, backend)}"></i>{escape(backend or "not supported")} ({count})</span>'
            for backend, count in on.items()
            if count
        ),
        colours="\n".join(_colour(i) for i in range(len(colours))) + "\n" + _NOBODY,
        graph=_svg(model, rows, colours),
        data=json.dumps([{**row, "time": _time(row, explained)} for row in rows]).replace("<", "\\u003c"),
    )


_NOBODY = ".nobody { fill: hsl(0 75% var(--light)); background: hsl(0 75% 55%); stroke: hsl(0 70% 50%); }"


def _colour(index: int) -> str:
    hue = _HUES[index % len(_HUES)]
    fill, line = f"hsl({hue} 60% var(--light))", f"hsl({hue} 50% 45%)"
    return f".backend{index} {{ fill: {fill}; background: {line}; stroke: {line}; }}"


def _class(colours: Mapping[str, int], backend: str) -> str:
    return f"backend{colours[backend]}" if backend else "nobody"


def _time(row: Mapping[str, Any], explained: Explanation) -> str:
    """What an operation takes; where its backend does not tell, what its partition does."""
    if "time_us" in row or row["partition"] is None:
        return time_text(row)
    whole = time_text(explained.partitions[row["partition"]])
    return f"{whole} with its whole partition" if whole else ""


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _svg(model: Model, rows: Sequence[Mapping[str, Any]], colours: Mapping[str, int]) -> str:
    operations = model.main.operations
    writers = {o: i for i, operation in enumerate(operations) for o in operation.outputs}
    edges = [
        (writers[o], i)
        for i, operation in enumerate(operations)
        for o in dict.fromkeys(operation.inputs)
        if writers.get(o, i) < i
    ]
    drawn = layout(len(operations), edges)
    width = int(drawn.columns * (WIDTH + _GAP_X)) - _GAP_X + 2 * _MARGIN
    height = drawn.layers * (HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
            *_paths(drawn),
            *(_node(row, drawn.places[i], _class(colours, row["backend"])) for i, row in enumerate(rows)),
            "</svg>",
        ]
    )


def _paths(drawn: Layout) -> list[str]:
    return [f'<path d="{_path([_centre(place) for place in route])}"/>' for route in drawn.routes]


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A line of curves that leave and arrive vertically. In between it passes whole rows straight down."""
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


def _centre(place: tuple[float, int]) -> tuple[float, float]:
    column, layer = place
    return (
        _MARGIN + column * (WIDTH + _GAP_X) + WIDTH / 2,
        _MARGIN + layer * (HEIGHT + _GAP_Y) + HEIGHT / 2,
    )


def _node(row: Mapping[str, Any], place: tuple[float, int], colour: str) -> str:
    x, y = _centre(place)
    shape = escape(row["outputs"][0].partition(" ")[2] if row["outputs"] else "")
    reasons = "; ".join(f"{refusal['backend']}: {refusal['reason']}" for refusal in row["refusals"])
    time = f", {time_text(row)}" if "time_us" in row else ""
    about = f"{row['backend'] or 'not supported'}{time}{' — ' + reasons if reasons else ''}"
    return (
        f'<g tabindex="0" role="button" aria-pressed="false" data-operation="{row["operation"]}">'
        f"<title>{escape(about)}</title>"
        f'<rect class="{colour}" x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="7"'
        "/>"
        f'<text x="{x:g}" y="{y - 3:g}">{row["operation"]} {escape(row["type"])}</text>'
        f'<text class="where" x="{x:g}" y="{y + 13:g}">{shape}</text></g>'
    )
