"""JSON report: the device and the versions, the share of each backend, the summary, and an entry for each result."""

import json
from collections.abc import Sequence
from dataclasses import asdict
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
    report = _facts_as_json(info) | {
        "summary": summary_line(results),
        "results": [asdict(result) for result in sorted(results, key=lambda r: (r.suite, r.name, r.path))],
    }
    if shares := by_backend(results, info):
        report["backends"] = [_share_as_json(share) for share in shares]
    path.write_text(json.dumps(report, indent=1) + "\n")


def write_figures(path: Path, info: RunInfo, name: str, figures: object) -> None:
    """Write the figures of a mode without checks, under its name.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(json.dumps(_facts_as_json(info) | {name: figures}, indent=1) + "\n")


def _facts_as_json(info: RunInfo) -> dict[str, Any]:
    """Return the part of a report that identifies the device and the versions."""
    return {**info.facts, "backends": [_backend_as_json(backend) for backend in info.ready_backends]}


def _share_as_json(share: BackendShare) -> dict[str, Any]:
    counts = {str(status): share.counts[status] for status in Status}
    paths = {path: sorted(operations) for path, operations in share.by_path.items()}
    facts = {"operations": sorted(share.operations), "operations_by_path": paths, "results": counts}
    return _backend_as_json(share.backend) | facts


def _backend_as_json(backend: BackendInfo) -> dict[str, Any]:
    return {"id": backend.id, "version": backend.version, "origin": backend.origin}
