"""Discovery of plug-ins: names, search paths, links and duplicates."""

import json
import logging
import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from nnhal_driver.backends.plugins import discovery
from nnhal_driver.backends.plugins.discovery import (
    Candidate,
    CandidateKind,
    find_candidates,
    has_backend_name,
    valid_folders,
)
from nnhal_driver.backends.report import CandidateState, Report
from tests.shared import SHARED, shared

TABLE = "reference/dynamic-backend-names.json"


def _rows(section: str) -> list[dict[str, object]]:
    path = SHARED / TABLE
    return list(json.loads(path.read_text())[section]) if path.exists() else [{}]


def _states(search_path: str) -> dict[str, str]:
    """Return "candidate", or the state and reason of the report, by file name."""
    return {
        Path(item.origin).name: "candidate" if isinstance(item, Candidate) else f"{item.state.value}: {item.reason}"
        for item in find_candidates(search_path)
    }


@pytest.mark.parametrize("row", _rows("files"), ids=lambda row: str(row.get("name")))
def test_names_of_arm_nn(row: dict[str, object], tmp_path: Path) -> None:
    shared(TABLE)
    name = str(row["name"])
    (tmp_path / name).touch()
    assert has_backend_name(name) == row["valid"], row["why"]
    candidates = [item for item in find_candidates(str(tmp_path)) if isinstance(item, Candidate)]
    assert bool(candidates) == row["valid"], row["why"]


def test_links_of_arm_nn(tmp_path: Path) -> None:
    shared(TABLE)
    (tmp_path / "Arm_CpuAcc_backend.so").touch()
    rows = _rows("links")
    for row in rows:
        (tmp_path / str(row["link"])).symlink_to(str(row["to"] or "nothing"))
    states = _states(str(tmp_path))
    for row in rows:
        state = states[str(row["link"])]
        assert ("the same file as" in state) if row["valid"] else ("is dangling" in state), row["why"]
    assert states["Arm_CpuAcc_backend.so"] == "candidate"


def test_folders_of_arm_nn(tmp_path: Path) -> None:
    shared(TABLE)
    rows = _rows("directories")
    for row in rows:
        path = tmp_path / str(row["file"])
        path.parent.mkdir()
        path.touch()
    search_path = f"{tmp_path}/pathA:{tmp_path}/pathB"
    assert [isinstance(item, Candidate) for item in find_candidates(search_path)] == [row["valid"] for row in rows]


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("Acme_Npu_backend.py", True),
        ("Acme2_Npu3_backend.py", True),
        ("Acme_Npu_backend.so.4", True),
        ("Acme_Npu_backend.py.1", False),
        ("Acme_Npu_backend.pyc", False),
        ("Acme_Npu_backend.so\n", False),
        ("Äcme_Npu_backend.so", False),
        ("Acme_Npu_backend.so.١", False),
        ("Acme_Np_u_backend.so", False),
        ("libAcme_Npu_backend.so.", False),
        ("acme_npu_BACKEND.so", False),
    ],
)
def test_names(name: str, valid: bool) -> None:
    assert has_backend_name(name) is valid


def test_similar_names_are_reported_and_others_ignored(tmp_path: Path) -> None:
    for name in ("Acme_Npu_backend_v2.so", "helpers.py", "README"):
        (tmp_path / name).touch()
    states = _states(str(tmp_path))
    assert list(states) == ["Acme_Npu_backend_v2.so"]
    assert "<Vendor>_<Name>_backend.so" in states["Acme_Npu_backend_v2.so"]


def test_file_names_determine_the_kind(tmp_path: Path) -> None:
    for name in ("A_P_backend.py", "A_N_backend.so.1.2"):
        (tmp_path / name).touch()
    kinds = {
        Path(item.origin).name: item.kind for item in find_candidates(str(tmp_path)) if isinstance(item, Candidate)
    }
    assert kinds == {"A_P_backend.py": CandidateKind.PYTHON, "A_N_backend.so.1.2": CandidateKind.NATIVE}


def test_invalid_folders_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, file = tmp_path / "good", tmp_path / "file"
    good.mkdir()
    file.touch()
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert valid_folders(f"good:{tmp_path}/absent::{file}:{good}:") == [good]
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        "good is not an absolute path; it is ignored",
        f"{tmp_path}/absent cannot be used (No such file or directory); it is ignored",
        f"{file} is not a folder; it is ignored",
    ]


def test_default_folders_may_be_absent_and_belong_to_this_user_or_root(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        assert valid_folders(f"{tmp_path}/absent:{tmp_path}", is_default=True) == [tmp_path]
        assert not caplog.records
        assert valid_folders("/usr", is_default=True) == [Path("/usr")], "it belongs to root"
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        monkeypatch.setattr(discovery, "_ROOT", -1)
        assert valid_folders(str(tmp_path), is_default=True) == []
        assert valid_folders(str(tmp_path)) == [tmp_path], "the operator chose it"
    assert [record.getMessage() for record in caplog.records] == [
        f"search path for backends: {tmp_path} belongs to user {owner}; expected {owner + 1}, or root; it is ignored"
    ]


def test_what_every_user_can_change_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    for path in (folder, outside):
        path.mkdir()
    for file in (folder / "A_File_backend.py", folder / "A_Good_backend.py", outside / "A_Link_backend.py"):
        file.touch()
    (folder / "A_File_backend.py").chmod(0o646)
    (folder / "A_Link_backend.py").symlink_to(outside / "A_Link_backend.py")
    outside.chmod(0o1777)
    states = _states(str(folder))
    assert states["A_Good_backend.py"] == "candidate"
    assert states["A_File_backend.py"] == (
        f"failed: {folder}/A_File_backend.py can be changed by every user (mode 646): run chmod o-w"
    )
    assert states["A_Link_backend.py"] == f"failed: {outside} can be changed by every user (mode 1777): run chmod o-w"
    with caplog.at_level(logging.WARNING):
        assert valid_folders(str(outside)) == []
    assert "outside can be changed by every user (mode 1777): run chmod o-w; it is ignored" in caplog.text


def test_empty_search_path() -> None:
    assert valid_folders("") == []


def test_candidates_are_ordered_by_folder_and_name(tmp_path: Path) -> None:
    for path in ("b/A_Z_backend.py", "b/A_Y_backend.py", "a/A_X_backend.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    names = [
        Path(item.origin).stem for item in find_candidates(f"{tmp_path}/b:{tmp_path}/a") if isinstance(item, Candidate)
    ]
    assert names == ["A_Y_backend", "A_Z_backend", "A_X_backend"]


def test_files_of_a_repeated_folder_are_skipped(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    (folder / "A_X_backend.py").touch()
    link.symlink_to(folder)
    first, second = find_candidates(f"{folder}:{link}")
    assert isinstance(first, Candidate)
    assert isinstance(second, Report) and second.state is CandidateState.SKIPPED
    assert second.reason == f"the same file as {folder}/A_X_backend.py"


def test_folder_with_the_name_of_a_backend(tmp_path: Path) -> None:
    (tmp_path / "A_X_backend.so").mkdir()
    assert _states(str(tmp_path)) == {"A_X_backend.so": "failed: it is not a file"}


def test_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("Acme_Npu", "acme.backend", discovery.ENTRY_POINT_GROUP),
        EntryPoint("Acme_Old", "acme.backend:Backend", discovery.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(discovery, "entry_points", lambda group: points if group == discovery.ENTRY_POINT_GROUP else [])
    candidate, report = find_candidates("")
    assert isinstance(candidate, Candidate)
    assert (candidate.kind, candidate.location) == (CandidateKind.PACKAGE, "acme.backend")
    assert isinstance(report, Report) and report.state is CandidateState.FAILED
    assert "must name a module" in report.reason
