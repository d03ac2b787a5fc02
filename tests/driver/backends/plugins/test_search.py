"""Search for plug-ins: each candidate loads in a child process first, and failures are reported."""

import logging
import os
import re
from pathlib import Path

import pytest

from nnhal_driver.backends import registry
from nnhal_driver.backends.api import API_VERSION, Backend
from nnhal_driver.backends.options import OptionValues
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.probe import probe
from nnhal_driver.backends.plugins.search import find
from nnhal_driver.backends.registry import Registration, SearchResult
from nnhal_driver.backends.report import BUILT_IN, CandidateState, Report
from tests.concurrency import wait_until
from tests.driver.backends.plugins import plugin_files

FACTORY = "return Doubler()"
CRASH = {FACTORY: "import os; os.kill(os.getpid(), 11)"}
HANG = {FACTORY: "import time; time.sleep(1000)"}
RENAMED = {'"Doubler"': '"Other"'}


def _probe(path: Path, seconds: float = 10) -> Report:
    return probe(file_candidate(path), seconds).report


def test_working_plugin_is_ready(tmp_path: Path) -> None:
    report = _probe(plugin_files.write(tmp_path, "A_B_backend.py"))
    assert (report.id, report.state, report.reason) == ("Doubler", CandidateState.READY, "")
    assert re.fullmatch(r"7\+[0-9a-f]{8}", report.version), "its own version, and the digest of its file"
    assert report.api_version == "{}.{}".format(*API_VERSION)


def test_crash_is_reported(tmp_path: Path) -> None:
    report = _probe(plugin_files.write(tmp_path, "A_B_backend.py", CRASH))
    assert report.state is CandidateState.FAILED
    assert report.reason == "it crashed the process with SIGSEGV while calling BackendFactory"


def test_exit_is_reported_with_the_last_output(tmp_path: Path) -> None:
    changes = {FACTORY: "print('no license', flush=True); import os; os._exit(3)"}
    reason = _probe(plugin_files.write(tmp_path, "A_B_backend.py", changes)).reason
    assert (
        reason
        == "it ended the process with exit code 3 while calling BackendFactory; last line of its output: no license"
    )


def test_hang_is_reported(tmp_path: Path) -> None:
    report = _probe(plugin_files.write(tmp_path, "A_B_backend.py", HANG), seconds=0.5)
    assert report.reason == "it hung for 0.5 s while calling BackendFactory"


def test_processes_of_a_plugin_end_with_the_child_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    factory = (
        f"import subprocess; open({str(pid_file)!r}, 'w').write(str(subprocess.Popen(['sleep', '1000']).pid)); "
        + FACTORY
    )
    assert _probe(plugin_files.write(tmp_path, "A_B_backend.py", {FACTORY: factory})).state is CandidateState.READY
    pid = int(pid_file.read_text())
    if not wait_until(lambda: has_exited(pid)):
        os.kill(pid, 9)
        pytest.fail(f"process {pid} still runs")


def has_exited(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_folder_with_working_and_broken_plugins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin_files.write(tmp_path, "A_Crash_backend.py", CRASH)
    plugin_files.write(tmp_path, "A_First_backend.py")
    plugin_files.write(tmp_path, "A_Same_backend.py")
    plugin_files.write(tmp_path, "A_Taken_backend.py", {'"Doubler"': '"CpuRef"'})
    plugin_files.write(tmp_path, "A_Other_backend.py", RENAMED)
    plugin_files.write(tmp_path, "A_Odd_backend_2.py")
    (tmp_path / "A_Text_backend.so").write_text("not a shared object")
    with caplog.at_level(logging.INFO):
        result = find(str(tmp_path))
    assert [(registration.id, Path(registration.origin).name) for registration in result.registrations] == [
        ("Doubler", "A_First_backend.py"),
        ("Other", "A_Other_backend.py"),
    ]
    reports = {Path(report.origin).name: (report.state, report.reason) for report in result.reports}
    assert reports["A_Same_backend.py"] == (
        CandidateState.SKIPPED,
        f"the id Doubler is taken by {tmp_path}/A_First_backend.py; give it another",
    )
    assert reports["A_Taken_backend.py"][1] == "the id CpuRef is taken by a built-in backend; give it another"
    assert reports["A_Odd_backend_2.py"][0] is CandidateState.SKIPPED
    assert reports["A_Crash_backend.py"][0] is CandidateState.FAILED
    assert "the shared object cannot be loaded" in reports["A_Text_backend.so"][1]
    lines = [record.getMessage() for record in caplog.records]
    assert f"found backend Doubler in {tmp_path}/A_First_backend.py" in lines
    for name, (state, reason) in reports.items():
        assert any(str(tmp_path / name) in line and f"{state.value}: {reason}" in line for line in lines), name


def test_assembly_orders_backends_and_reports(tmp_path: Path) -> None:
    plugin_files.write(tmp_path, "A_First_backend.py")
    plugin_files.write(tmp_path, "A_Other_backend.py", RENAMED)
    plugin_files.write(tmp_path, "A_Crash_backend.py", CRASH)
    assembly = registry.assemble(["Other", "CpuRef"], find(str(tmp_path)))
    assert [backend.id for backend in assembly.backends] == ["Other", "CpuRef"]
    assert [(report.id, report.state) for report in assembly.reports] == [
        ("Other", CandidateState.READY),
        ("CpuRef", CandidateState.READY),
        ("Doubler", CandidateState.SKIPPED),
        ("", CandidateState.FAILED),
    ]
    assert [report.origin for report in assembly.reports][1] == BUILT_IN
    assert "registered, not used" in assembly.reports[2].reason and "Other, CpuRef" in assembly.reports[2].reason


def test_failing_factory_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def create(_: OptionValues) -> Backend:
        raise ImportError("the engine is missing")

    with caplog.at_level(logging.WARNING):
        assembly = registry.assemble(["Broken", "CpuRef"], SearchResult((Registration("Broken", create, "somewhere"),)))
    assert [backend.id for backend in assembly.backends] == ["CpuRef"]
    assert [(report.id, report.state, report.reason) for report in assembly.reports][1] == (
        "Broken",
        CandidateState.FAILED,
        "the engine is missing",
    )
    assert "backend Broken (somewhere) cannot be used: the engine is missing" in caplog.text


def test_no_usable_backend_is_an_error() -> None:
    def create(_: OptionValues) -> Backend:
        raise ImportError("the engine is missing")

    with pytest.raises(ValueError, match="no backend can be used: Broken: the engine is missing"):
        registry.assemble(["Broken"], SearchResult((Registration("Broken", create),)))


def test_unknown_name_is_an_error_unless_a_candidate_failed() -> None:
    with pytest.raises(ValueError, match="there is no backend 'Npu'; there are"):
        registry.assemble(["Npu", "CpuRef"])
    with pytest.raises(ValueError, match="'CpuRef' is listed twice"):
        registry.assemble(["CpuRef", "CpuRef"])
    unnamed = Report("", CandidateState.FAILED, "A_Npu_backend.so", "it crashed")
    assembly = registry.assemble(["Npu", "CpuRef"], SearchResult(reports=(unnamed,)))
    assert [(report.id, report.state) for report in assembly.reports] == [
        ("CpuRef", CandidateState.READY),
        ("Npu", CandidateState.FAILED),
        ("", CandidateState.FAILED),
    ]
    named = Report("Npu", CandidateState.FAILED, "A_Npu_backend.so", "it is too new")
    assembly = registry.assemble(["Npu", "CpuRef"], SearchResult(reports=(named,)))
    assert [report.reason for report in assembly.reports] == ["", "it is too new"]
