"""JSON of results."""

import json
from pathlib import Path

from nnhal_tools.conformance.report.json_report import write_figures, write_json
from tests.tools.conformance.report.sample_results import INFO, RESULTS, RESULTS_ON_PATHS


def test_reports_name_the_device_and_the_versions(tmp_path: Path) -> None:
    write_json(tmp_path / "results.json", INFO, RESULTS[3:5])
    write_figures(tmp_path / "support.json", INFO, "support", {"ADD": {"Npu": 1}})
    for name in ("results", "support"):
        report = json.loads((tmp_path / f"{name}.json").read_text())
        facts = {key: report[key] for key in ("device", "device_version", "nnhal_version", "commit")}
        assert list(facts.values()) == ["nnhal-cpu", "nnhal/0.1 Npu/2", "0.1", "abcdef"]
        backends = [(backend["id"], backend["version"], backend["origin"]) for backend in report["backends"]]
        assert backends == [("Npu", "2", "npu.so"), ("CpuRef", "1", "built in")], "failed backends run nothing"
        assert name in report


def test_operations_of_each_backend_by_path(tmp_path: Path) -> None:
    write_json(tmp_path / "report.json", INFO, RESULTS_ON_PATHS)
    npu, reference = json.loads((tmp_path / "report.json").read_text())["backends"]
    assert npu["operations"] == ["ADD", "MUL"]
    assert npu["operations_by_path"] == {"SYNC": ["ADD", "MUL"], "BURST": ["ADD"]}
    assert reference["operations_by_path"] == {"BURST": ["MUL"]}
    assert reference["results"] == {"passed": 2, "failed": 0, "skipped": 0, "unsupported": 0}
