"""One HTML file that holds a whole run: numbers, tables, and a list of results that grows as it is scrolled.

The results are JSON within the page, which its script turns into text nodes. The part of the address after "#" is the
filter, `#status=failed&operation=ADD`, so that every number links to the results that it counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.ids import CHECKS
from nnhal_tools.conformance.report.counts import (
    BackendShare,
    Counts,
    Groups,
    by_backend,
    by_check,
    by_operation,
    by_suite,
    counted_operations,
)
from nnhal_tools.conformance.run_info import RunInfo
from nnhal_tools.templates import render

_URGENCY = (Status.FAILED, Status.UNSUPPORTED, Status.SKIPPED, Status.PASSED)
"""The order in which results are listed."""
_NAMED_OPERATIONS = 4
"""The names of more operations do not fit into the table of backends. Its links list them."""


@dataclass(frozen=True)
class _Table:
    """A table of counts.

    Attributes:
        key: the filter that its links set.
        statuses: the columns.
        full_width: the count that a full bar stands for; 0 for the total of the row.
        descriptions: texts below the names of rows.
    """

    key: str
    caption: str
    groups: Groups
    statuses: Sequence[Status] = tuple(Status)
    note: str = ""
    full_width: int = 0
    descriptions: Mapping[str, str] = field(default_factory=dict)


def write_html(path: Path, info: RunInfo, results: Sequence[Result]) -> None:
    """Write the report. It loads nothing from elsewhere.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(_page(info, results, datetime.now(UTC)), encoding="utf-8")


def _page(info: RunInfo, results: Sequence[Result], now: datetime) -> str:
    totals = Counts(result.status for result in results)
    suites, operations, failures = by_suite(results), by_operation(results), by_check(results)
    shares = by_backend(results, info)
    tables = [
        _Table("suite", "By suite", suites),
        _Table(
            "check",
            "Failures by check",
            failures,
            [Status.FAILED],
            # Failures are compared with each other; elsewhere a bar shows how the results of one row ended.
            full_width=max((counts.total() for counts in failures.values()), default=0),
            descriptions={check: CHECKS[check].description for check in failures.keys() & CHECKS.keys()},
        ),
        _Table(
            "backend",
            "By backend",
            {share.backend.id: share.counts for share in shares},
            note="operations count for the backend that ran them itself",
            descriptions={share.backend.id: _describe(share, len(operations)) for share in shares},
        ),
        _Table("operation", "By operation", operations, note="a result counts for each operation of its model"),
    ]
    return render(
        "conformance_report.html.j2",
        title=f"{totals[Status.FAILED]} failed of {len(results)} – conformance of {info.target}",
        verdict=_verdict(totals),
        about=f"{info.describe()} · {now:%Y-%m-%d %H:%M} UTC · {_duration(results)} of checking",
        totals=totals,
        statuses=tuple(Status),
        tables=tables,
        suites=suites,
        operations=sorted(operations),
        backends=[share.backend.id for share in shares],
        failed_checks=sorted(failures),
        data=_data(results),
    )


def _describe(share: BackendShare, total: int) -> str:
    version = f"version {share.backend.version}, " if share.backend.version else ""
    names = f": {', '.join(sorted(share.operations))}" if 0 < len(share.operations) <= _NAMED_OPERATIONS else ""
    paths = f"; by path: {share.describe_paths()}" if share.by_path else ""
    return f"{version}{share.describe(total)}{names}{paths}"


def _verdict(totals: Counts) -> str:
    if not totals:
        return "No check ran"
    if totals[Status.FAILED]:
        return f"{totals[Status.FAILED]:,} of {totals.total():,} checks failed"
    if totals[Status.PASSED] == totals.total():
        return f"All {totals.total():,} checks passed"
    return f"No check failed; {totals[Status.PASSED]:,} of {totals.total():,} passed"


def _duration(results: Sequence[Result]) -> str:
    seconds = round(sum(result.seconds for result in results))
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


def _data(results: Sequence[Result]) -> dict[str, Any]:
    """Return the JSON that the script reads. Results refer to their lists by index, so that equal lists occur once."""
    lists: dict[str, int] = {}

    def index_of(values: Sequence[Any]) -> int:
        return lists.setdefault(json.dumps(values), len(lists))

    rows = [
        [
            *(r.status, r.suite, r.name, r.path, r.check, r.reason, round(r.seconds, 4)),
            *(r.stimulus, r.expected, r.got),
            *(index_of(counted_operations(r)), index_of(r.operations), index_of(r.types), index_of(r.checks)),
        ]
        for r in sorted(results, key=lambda result: _URGENCY.index(result.status))
    ]
    mentioned = {check for result in results for check in (result.check, *result.checks)}
    descriptions = {check: CHECKS[check].description for check in sorted(mentioned & CHECKS.keys())}
    return {"rows": rows, "lists": [json.loads(values) for values in lists], "checks": descriptions}
