"""`nnhal quarantine`: what it shows and clears."""

import json
import time
from pathlib import Path

import pytest

from nnhal_service.quarantine import Crash, QuarantineFile
from tests.tools.cli.command import assert_fails, invoke


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state directory with one model that is kept from a backend, and one that is refused."""
    file = QuarantineFile(tmp_path)
    file.record(b"\xab" * 32, Crash("CpuAcc", time.time(), "killed by SIGSEGV", sure=True))
    for backend in ("Npu", "CpuRef"):
        file.record(b"\xcd" * 32, Crash(backend, time.time(), "killed by SIGABRT", sure=True))
    return tmp_path


def test_list(state: Path) -> None:
    text = invoke("quarantine", "list", "--state-dir", state).stdout
    assert "2 models in quarantine" in text
    assert "abababababab" in text and "not on CpuAcc" in text and "killed by SIGSEGV" in text
    assert "cdcdcdcdcdcd" in text and "Npu, CpuRef" in text and "refused" in text


def test_list_as_json(state: Path) -> None:
    models = json.loads(invoke("quarantine", "list", "--json", "--state-dir", state).stdout)
    assert [crash["backend"] for crash in models["cd" * 32]] == ["Npu", "CpuRef"]


def test_clear(state: Path) -> None:
    assert_fails(invoke("quarantine", "clear", "77", "--state-dir", state), 1, "no digest starts with '77'")
    assert invoke("quarantine", "clear", "ABAB", "--state-dir", state).stdout == "cleared 1 model\n"
    assert invoke("quarantine", "clear", "--state-dir", state).stdout == "cleared 1 model\n"
    assert invoke("quarantine", "list", "--state-dir", state).stdout == "0 models in quarantine\n"
    assert invoke("quarantine", "clear", "--state-dir", state).stdout == "cleared 0 models\n"


def test_missing_directory(tmp_path: Path) -> None:
    assert invoke("quarantine", "list", "--state-dir", tmp_path / "none").stdout == "0 models in quarantine\n"
    assert not (tmp_path / "none").exists()
