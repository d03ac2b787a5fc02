"""Absent data of ../shared skips a test on a developer's machine, and fails it in CI."""

from pathlib import Path

import pytest

from tests import shared as module
from tests.shared import shared


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "present").touch()
    monkeypatch.setattr(module, "SHARED", tmp_path)


def test_absent_data_skips_without_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="absent is not present"):
        shared("absent")


def test_absent_data_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="absent is not present, and CI=true"):
        shared("absent")
    assert shared("present").exists()
