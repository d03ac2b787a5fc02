"""One HTML file that holds a whole run: numbers, tables, and a list of results that is made as it is scrolled.

The results are JSON within the page, which its script turns into text nodes; the rest is escaped here. The part of the
address after "#" is the filter, `#status=failed&operation=ADD`, so that every number links to the results it counts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tools.conformance.check import Result, Status
from tools.conformance.ids import CHECKS
from tools.conformance.report.counts import Counts, Groups, by_check, by_operation, by_suite, operations_of
from tools.conformance.report.script import SCRIPT
from tools.conformance.report.style import STYLE
from tools.page_head import HEAD

if TYPE_CHECKING:
    from tools.conformance.run import Where

_URGENCY = (Status.FAILED, Status.UNSUPPORTED, Status.SKIPPED, Status.PASSED)
"""The order in which results are listed."""

_PAGE = Template(
    HEAD
    + """<style>$style</style>
</head>
<body>
<header>
<h1 class="$verdict_class">$verdict</h1>
<p class="about">$about</p>
<div class="bar large" aria-hidden="true">$bar</div>
<nav class="tiles" aria-label="Filter by status">$tiles</nav>
</header>
<main>
<div class="tables">$tables</div>
<section id="results" aria-labelledby="results-heading">
<h2 id="results-heading">Results</h2>
<noscript><p>The list of results needs JavaScript.</p></noscript>
<form id="filters" role="search" aria-label="Filter results">
$selects
<label class="text">Search <input type="search" name="text" placeholder="name, reason, backend, type …"></label>
</form>
<p class="shown"><span id="count" role="status"></span>
<button type="button" id="clear">Clear filters</button>
<label><input type="checkbox" id="expand"> Expand all</label></p>
<ol id="list"></ol>
<button type="button" id="more" hidden>Show more</button>
</section>
</main>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body>
</html>
"""
)


def write_html(path: Path, where: "Where", results: Sequence[Result]) -> None:
    """Writes the report. It loads nothing from elsewhere.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(_page(where, results, datetime.now(UTC)), encoding="utf-8")


def _page(where: "Where", results: Sequence[Result], now: datetime) -> str:
    counts = Counts(result.status for result in results)
    failed = counts[Status.FAILED]
    device = f" · device {where.device}" if where.device else ""
    return _PAGE.substitute(
        title=escape(f"{failed} failed of {len(results)} – conformance of {where.address}"),
        style=STYLE,
        verdict=escape(_verdict(counts)),
        verdict_class="bad" if failed else "good",
        about=escape(f"{where.address}{device} · {now:%Y-%m-%d %H:%M} UTC · {_busy(results)} of checking"),
        bar="".join(_bar(counts, counts.total())),
        tiles="".join(_tiles(counts)),
        tables="".join(_tables(results)),
        selects="\n".join(_selects(results)),
        data=_json(_data(results)),
        script=SCRIPT,
    )


def _verdict(counts: Counts) -> str:
    if not counts:
        return "No check ran"
    if counts[Status.FAILED]:
        return f"{counts[Status.FAILED]:,} of {counts.total():,} checks failed"
    if counts[Status.PASSED] == counts.total():
        return f"All {counts.total():,} checks passed"
    return f"No check failed; {counts[Status.PASSED]:,} of {counts.total():,} passed"


def _busy(results: Sequence[Result]) -> str:
    seconds = round(sum(result.seconds for result in results))
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


def _tiles(counts: Counts) -> Iterator[str]:
    tiles = {"": ("all", counts.total())} | {str(status): (str(status), counts[status]) for status in Status}
    for status, (label, count) in tiles.items():
        kind = f'type="button" class="{label}" data-status="{status}"'
        yield f"<button {kind}><b>{count:,}</b> {label}</button>"


def _bar(counts: Counts, widest: int) -> Iterator[str]:
    """The parts of a bar; its whole width stands for `widest` results."""
    for status in Status:
        if counts[status]:
            yield f'<i class="{status}" style="width:{100 * counts[status] / widest:.3f}%"></i>'


def _tables(results: Sequence[Result]) -> Iterator[str]:
    yield _table("suite", "By suite", by_suite(results))
    yield _table("check", "Failures by check", by_check(results))
    yield _table("operation", "By operation", by_operation(results), "a result counts for each operation of its model")


def _table(key: str, caption: str, groups: Groups, note: str = "") -> str:
    if not groups:
        return ""
    shown = [status for status in Status if key != "check" or status == Status.FAILED]
    headings = "".join(f'<th scope="col" class="number">{status}</th>' for status in shown)
    # Failures are compared with each other; elsewhere a bar shows how the results of one row ended.
    widest = max(counts.total() for counts in groups.values()) if key == "check" else 0
    rows = "".join(_row(key, name, counts, shown, widest or counts.total()) for name, counts in groups.items())
    return (
        f'<div class="scroll by-{key}" tabindex="0" role="region" aria-label="{caption}"><table>'
        f"<caption>{caption} <small>{note}</small></caption>"
        f'<thead><tr><th scope="col">{key}</th><th scope="col" class="bars"><span class="hidden">share</span></th>'
        f"{headings}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(key: str, name: str, counts: Counts, shown: Sequence[Status], widest: int) -> str:
    cells = "".join(f'<td class="number">{_figure(key, name, status, counts[status])}</td>' for status in shown)
    label = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    about = f"<small>{escape(CHECKS[name].text)}</small>" if key == "check" and name in CHECKS else ""
    return (
        f'<tr><th scope="row"><a href="{_link({key: name})}">{_breakable(name) or "–"}</a>{about}</th>'
        f'<td class="bars"><div class="bar" role="img" aria-label="{label}">{"".join(_bar(counts, widest))}</div></td>'
        f"{cells}</tr>"
    )


def _figure(key: str, name: str, status: Status, count: int) -> str:
    if not count:
        return '<span class="none">0</span>'
    return f'<a class="{status}" href="{_link({key: name, "status": str(status)})}">{count:,}</a>'


def _breakable(name: str) -> str:
    """An escaped name whose lines may break after "_"."""
    return escape(name).replace("_", "_<wbr>")


def _link(filters: Mapping[str, str]) -> str:
    return escape("#" + urlencode(filters))


def _selects(results: Sequence[Result]) -> Iterator[str]:
    yield _select("status", "Status", [str(status) for status in Status])
    yield _select("suite", "Suite", by_suite(results))
    yield _select("operation", "Operation", sorted(by_operation(results)))
    yield _select("check", "Failed check", sorted(by_check(results)))


def _select(key: str, label: str, values: Iterable[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return f'<label>{label} <select name="{key}"><option value="">any</option>{options}</select></label>'


def _data(results: Sequence[Result]) -> dict[str, Any]:
    """What the script reads. Lists that many results share are held once, in `lists`, and named by their place."""
    lists: dict[str, int] = {}

    def place(values: Sequence[Any]) -> int:
        return lists.setdefault(json.dumps(values), len(lists))

    rows = [
        [
            *(r.status, r.suite, r.name, r.path, r.check, r.reason, round(r.seconds, 4)),
            *(r.stimulus, r.expected, r.got),
            *(place(operations_of(r)), place(r.operations), place(r.types), place(r.checks)),
        ]
        for r in sorted(results, key=lambda result: _URGENCY.index(result.status))
    ]
    named = {check for result in results for check in (result.check, *result.checks)}
    texts = {check: CHECKS[check].text for check in sorted(named & CHECKS.keys())}
    return {"rows": rows, "lists": [json.loads(values) for values in lists], "checks": texts}


def _json(data: object) -> str:
    """JSON that cannot end the element that holds it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
