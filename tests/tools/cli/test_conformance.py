"""`nnhal conformance`: the figures of the modes `support` and `perf`, as JSON."""

import json
from pathlib import Path

import nnhal
from tests.tools.cli.command import assert_fails, invoke


def test_support_and_times_are_written_as_json(target: str, tmp_path: Path) -> None:
    options = ["--target", target, "--select", "add*", "--sample", 1, "--json", tmp_path / "figures.json"]
    assert invoke("conformance", "--mode", "support", *options).exit_code == 0
    support = json.loads((tmp_path / "figures.json").read_text())
    assert support["support"]["ADD"]["CpuAcc"] > 0
    assert support["device"] == "nnhal" and support["nnhal_version"] == nnhal.__version__
    assert {backend["id"]: backend["version"] for backend in support["backends"]}["CpuRef"]
    assert invoke("conformance", "--mode", "perf", *options).exit_code == 0
    timings = json.loads((tmp_path / "figures.json").read_text())["perf"]
    assert {tuple(timing["operations"]) for timing in timings} == {("ADD",)}
    assert all(timing["device_us"] > 0 for timing in timings)


def test_unwritable_json_file_is_reported(target: str, tmp_path: Path) -> None:
    options = ["--target", target, "--select", "add_float", "--json", tmp_path / "no" / "figures.json"]
    assert_fails(invoke("conformance", "--mode", "support", *options), 2, "cannot write", "figures.json")
