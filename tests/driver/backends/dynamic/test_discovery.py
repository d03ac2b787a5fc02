"""Naming, search paths, links and duplicates."""

import json
import logging
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from driver.backends import discovery
from driver.backends.discovery import Candidate, Kind, candidates, folders, has_backend_name
from driver.backends.report import Report, State
from tests.shared import SHARED, shared

TABLE = "reference/dynamic-backend-names.json"


def _rows(section: str) -> list[dict[str, object]]:
    path = SHARED / TABLE
    return list(json.loads(path.read_text())[section]) if path.exists() else [{}]


def _states(search_path: str) -> dict[str, str]:
    """What became of each file: "candidate", or the state and reason of its report."""
    return {
        Path(one.origin).name: "candidate" if isinstance(one, Candidate) else f"{one.state.value}: {one.reason}"
        for one in candidates(search_path)
    }


@pytest.mark.parametrize("row", _rows("files"), ids=lambda row: str(row.get("name")))
def test_names_of_the_table(row: dict[str, object], tmp_path: Path) -> None:
    shared(TABLE)
    name = str(row["name"])
    (tmp_path / name).touch()
    assert has_backend_name(name) == row["valid"], row["why"]
    found = [one for one in candidates(str(tmp_path)) if isinstance(one, Candidate)]
    assert bool(found) == row["valid"], row["why"]


def test_links_of_the_table(tmp_path: Path) -> None:
    shared(TABLE)
    (tmp_path / "Arm_CpuAcc_backend.so").touch()
    rows = _rows("links")
    for row in rows:
        (tmp_path / str(row["link"])).symlink_to(str(row["to"] or "nothing"))
    states = _states(str(tmp_path))
    for row in rows:
        state = states[str(row["link"])]
        assert ("the same file as" in state) if row["valid"] else ("leads nowhere" in state), row["why"]
    assert states["Arm_CpuAcc_backend.so"] == "candidate"


def test_folders_of_the_table(tmp_path: Path) -> None:
    shared(TABLE)
    rows = _rows("directories")
    for row in rows:
        path = tmp_path / str(row["file"])
        path.parent.mkdir()
        path.touch()
    search_path = f"{tmp_path}/pathA:{tmp_path}/pathB"
    assert [isinstance(one, Candidate) for one in candidates(search_path)] == [row["valid"] for row in rows]


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


def test_a_name_that_is_close_is_reported_and_others_are_passed_over(tmp_path: Path) -> None:
    for name in ("Acme_Npu_backend_v2.so", "helpers.py", "README"):
        (tmp_path / name).touch()
    states = _states(str(tmp_path))
    assert list(states) == ["Acme_Npu_backend_v2.so"]
    assert "<Vendor>_<Name>_backend.so" in states["Acme_Npu_backend_v2.so"]


def test_kinds(tmp_path: Path) -> None:
    for name in ("A_P_backend.py", "A_N_backend.so.1.2"):
        (tmp_path / name).touch()
    kinds = {Path(one.origin).name: one.kind for one in candidates(str(tmp_path)) if isinstance(one, Candidate)}
    assert kinds == {"A_P_backend.py": Kind.PYTHON, "A_N_backend.so.1.2": Kind.NATIVE}


def test_bad_folders_are_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, file = tmp_path / "good", tmp_path / "file"
    good.mkdir()
    file.touch()
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert folders(f"good:{tmp_path}/absent::{file}:{good}:") == [good]
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        "good is not absolute; it is left out",
        f"{tmp_path}/absent cannot be used (No such file or directory); it is left out",
        f"{file} is not a folder; it is left out",
    ]


def test_no_path_finds_nothing() -> None:
    assert folders("") == []


def test_order_is_that_of_the_folders_then_of_the_names(tmp_path: Path) -> None:
    for name in ("b/A_Z_backend.py", "b/A_Y_backend.py", "a/A_X_backend.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [Path(one.origin).stem for one in candidates(f"{tmp_path}/b:{tmp_path}/a") if isinstance(one, Candidate)]
    assert found == ["A_Y_backend", "A_Z_backend", "A_X_backend"]


def test_the_same_folder_again_gives_no_second_candidate(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    (folder / "A_X_backend.py").touch()
    link.symlink_to(folder)
    first, second = candidates(f"{folder}:{link}")
    assert isinstance(first, Candidate)
    assert isinstance(second, Report) and second.state is State.SKIPPED
    assert second.reason == f"the same file as {folder}/A_X_backend.py"


def test_a_folder_that_is_named_as_a_backend(tmp_path: Path) -> None:
    (tmp_path / "A_X_backend.so").mkdir()
    assert _states(str(tmp_path)) == {"A_X_backend.so": "failed: is not a file"}


def test_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("Acme_Npu", "acme.backend", discovery.GROUP),
        EntryPoint("Acme_Old", "acme.backend:Backend", discovery.GROUP),
    ]
    monkeypatch.setattr(discovery, "entry_points", lambda group: points if group == discovery.GROUP else [])
    good, bad = candidates("")
    assert isinstance(good, Candidate) and (good.kind, good.location) == (Kind.PACKAGE, "acme.backend")
    assert isinstance(bad, Report) and bad.state is State.FAILED and "must name a module" in bad.reason
