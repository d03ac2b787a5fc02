"""Candidates are tried in a process of their own; what fails is reported, the rest is registered, a device starts."""

import logging
import os
import time
from pathlib import Path

import pytest

from driver.backends import registry
from driver.backends.api import API_VERSION, Backend
from driver.backends.discovery import file_candidate
from driver.backends.dynamic import find
from driver.backends.probe import probe
from driver.backends.registry import Found, Registration
from driver.backends.report import BUILT_IN, Report, State
from tests.driver.backends.dynamic import plugins

FACTORY = "return Doubler()"
CRASH = {FACTORY: "import os; os.kill(os.getpid(), 11)"}
HANG = {FACTORY: "import time; time.sleep(1000)"}
RENAMED = {'"Doubler"': '"Other"'}


def _one(path: Path, seconds: float = 10) -> Report:
    return probe(file_candidate(path), seconds).report


def test_a_good_one(tmp_path: Path) -> None:
    report = _one(plugins.write(tmp_path, "A_B_backend.py"))
    assert (report.id, report.state, report.version, report.reason) == ("Doubler", State.READY, "7", "")
    assert report.api_version == "{}.{}".format(*API_VERSION)


def test_a_crash_is_a_report(tmp_path: Path) -> None:
    report = _one(plugins.write(tmp_path, "A_B_backend.py", CRASH))
    assert report.state is State.FAILED
    assert report.reason == "it crashed the process with SIGSEGV while calling BackendFactory"


def test_an_exit_is_a_report_with_the_last_words(tmp_path: Path) -> None:
    end = {FACTORY: "print('no licence', flush=True); import os; os._exit(3)"}
    reason = _one(plugins.write(tmp_path, "A_B_backend.py", end)).reason
    assert reason == "it ended the process with exit code 3 while calling BackendFactory; its last words: no licence"


def test_a_hang_is_a_report(tmp_path: Path) -> None:
    report = _one(plugins.write(tmp_path, "A_B_backend.py", HANG), seconds=0.5)
    assert report.reason == "it hung for 0.5 s while calling BackendFactory"


def test_what_a_plugin_starts_ends_with_its_trial(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    start = (
        f"import subprocess; open({str(note)!r}, 'w').write(str(subprocess.Popen(['sleep', '1000']).pid)); " + FACTORY
    )
    assert _one(plugins.write(tmp_path, "A_B_backend.py", {FACTORY: start})).state is State.READY
    pid = int(note.read_text())
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                break
        except FileNotFoundError:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, 9)
        pytest.fail("the process is still there")


def test_all_that_is_in_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugins.write(tmp_path, "A_Crash_backend.py", CRASH)
    plugins.write(tmp_path, "A_First_backend.py")
    plugins.write(tmp_path, "A_Same_backend.py")
    plugins.write(tmp_path, "A_Taken_backend.py", {'"Doubler"': '"CpuRef"'})
    plugins.write(tmp_path, "A_Other_backend.py", RENAMED)
    plugins.write(tmp_path, "A_Odd_backend_2.py")
    (tmp_path / "A_Text_backend.so").write_text("no shared object")
    with caplog.at_level(logging.INFO):
        found = find(str(tmp_path))
    assert [(one.id, Path(one.origin).name) for one in found.registrations] == [
        ("Doubler", "A_First_backend.py"),
        ("Other", "A_Other_backend.py"),
    ]
    told = {Path(one.origin).name: (one.state, one.reason) for one in found.reports}
    assert told["A_Same_backend.py"] == (
        State.SKIPPED,
        f"the id Doubler is taken by {tmp_path}/A_First_backend.py; give it another",
    )
    assert told["A_Taken_backend.py"][1] == "the id CpuRef is taken by a built-in backend; give it another"
    assert told["A_Odd_backend_2.py"][0] is State.SKIPPED
    assert told["A_Crash_backend.py"][0] is State.FAILED
    assert "the shared object cannot be loaded" in told["A_Text_backend.so"][1]
    lines = [record.getMessage() for record in caplog.records]
    assert f"found backend Doubler in {tmp_path}/A_First_backend.py" in lines
    for name, (state, reason) in told.items():
        assert any(str(tmp_path / name) in line and f"{state.value}: {reason}" in line for line in lines), name


def test_assembly(tmp_path: Path) -> None:
    plugins.write(tmp_path, "A_First_backend.py")
    plugins.write(tmp_path, "A_Other_backend.py", RENAMED)
    plugins.write(tmp_path, "A_Crash_backend.py", CRASH)
    made = registry.assemble(["Other", "CpuRef"], find(str(tmp_path)))
    assert [backend.id for backend in made.backends] == ["Other", "CpuRef"]
    assert [(one.id, one.state) for one in made.reports] == [
        ("Other", State.READY),
        ("CpuRef", State.READY),
        ("Doubler", State.SKIPPED),
        ("", State.FAILED),
    ]
    assert [one.origin for one in made.reports][1] == BUILT_IN
    assert "registered, not used" in made.reports[2].reason and "Other, CpuRef" in made.reports[2].reason


def test_a_factory_that_fails_here_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> Backend:
        raise ImportError("the engine is missing")

    with caplog.at_level(logging.WARNING):
        made = registry.assemble(["Broken", "CpuRef"], Found((Registration("Broken", make, "somewhere"),)))
    assert [backend.id for backend in made.backends] == ["CpuRef"]
    assert [(one.id, one.state, one.reason) for one in made.reports][1] == (
        "Broken",
        State.FAILED,
        "the engine is missing",
    )
    assert "backend Broken (somewhere) cannot be used: the engine is missing" in caplog.text


def test_nothing_is_left() -> None:
    def make() -> Backend:
        raise ImportError("the engine is missing")

    with pytest.raises(ValueError, match="no backend can be used: Broken: the engine is missing"):
        registry.assemble(["Broken"], Found((Registration("Broken", make),)))


def test_an_unknown_name_is_an_error_unless_a_candidate_failed() -> None:
    with pytest.raises(ValueError, match="there is no backend 'Npu'; there are"):
        registry.assemble(["Npu", "CpuRef"])
    with pytest.raises(ValueError, match="'CpuRef' is listed twice"):
        registry.assemble(["CpuRef", "CpuRef"])
    nameless = Report("", State.FAILED, "A_Npu_backend.so", "it crashed")
    made = registry.assemble(["Npu", "CpuRef"], Found(reports=(nameless,)))
    assert [(one.id, one.state) for one in made.reports] == [
        ("CpuRef", State.READY),
        ("Npu", State.FAILED),
        ("", State.FAILED),
    ]
    named = Report("Npu", State.FAILED, "A_Npu_backend.so", "it is too new")
    made = registry.assemble(["Npu", "CpuRef"], Found(reports=(named,)))
    assert [one.reason for one in made.reports] == ["", "it is too new"]
