"""JSON report: the device and the versions, the share of each backend, the summary, and an entry for each result."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnhal.types import BackendInfo
from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.report.counts import BackendShare, by_backend, summary_line
from nnhal_tools.conformance.run_info import RunInfo


def write_json(path: Path, info: RunInfo, results: Sequence[Result]) -> None:
    """Write the report.

    Raises:
        OSError: the file cannot be written.
    """
    report = {
        **info.facts,
        "backends": [_share_as_json(share) for share in by_backend(results, info)]
        or [_backend_as_json(backend) for backend in info.ready_backends],
        "summary": summary_line(results),
        "results": [result.as_json() for result in sorted(results, key=lambda r: (r.suite, r.name, r.path))],
    }
    path.write_text(json.dumps(report, indent=1) + "\n")


def _share_as_json(share: BackendShare) -> dict[str, Any]:
    counts = {str(status): share.counts[status] for status in Status}
    return _backend_as_json(share.backend) | {"operations": sorted(share.operations), "results": counts}


def _backend_as_json(backend: BackendInfo) -> dict[str, Any]:
    return {"id": backend.id, "version": backend.version, "origin": backend.origin}
