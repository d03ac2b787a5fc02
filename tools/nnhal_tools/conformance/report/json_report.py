"""JSON report: one entry for each result, and the summary."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnhal_tools.conformance.check import Result
from nnhal_tools.conformance.report.counts import summary_line

if TYPE_CHECKING:
    from nnhal_tools.conformance.runner import TargetConfig


def write_json(path: Path, config: "TargetConfig", results: Sequence[Result]) -> None:
    """Write the report.

    Raises:
        OSError: the file cannot be written.
    """
    report = {
        "target": config.address,
        "device": config.device,
        "summary": summary_line(results),
        "results": [result.as_json() for result in sorted(results, key=lambda r: (r.suite, r.name, r.path))],
    }
    path.write_text(json.dumps(report, indent=1) + "\n")
