"""Certificates that follow their files: every way to replace them, and what stays while they do not fit together."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhal_service.tls.certificates import CertificateFiles
from nnhal_service.tls.reloading import ReloadingCertificates
from tests.service.tls.authority import Authority, Pair

AUTHORITY = Authority()
FIRST, SECOND = AUTHORITY.issue("first.example"), AUTHORITY.issue("second.example")


def load(folder: Path) -> ReloadingCertificates:
    return ReloadingCertificates(CertificateFiles(folder / "tls.crt", folder / "tls.key"))


def subject(certificates: ReloadingCertificates) -> str:
    certificates.refresh()
    return certificates.current.subject


def write_version(folder: Path, name: str, pair: Pair) -> None:
    (folder / name).mkdir()
    pair.write(folder / name)


def swap_link(folder: Path, name: str, version: str) -> None:
    (folder / f"{name}.new").symlink_to(version)
    (folder / f"{name}.new").rename(folder / name)


def switch_version(folder: Path) -> None:
    write_version(folder, "..2", SECOND)
    swap_link(folder, "..data", "..2")


@pytest.mark.parametrize("replace", [SECOND.write, SECOND.replace])
def test_replaced_files(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    FIRST.write(tmp_path)
    certificates = load(tmp_path)
    assert subject(certificates) == "first.example"
    replace(tmp_path)
    assert subject(certificates) == "second.example"


def test_replaced_link(tmp_path: Path) -> None:
    write_version(tmp_path, "..1", FIRST)
    swap_link(tmp_path, "..data", "..1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    certificates = load(tmp_path)
    switch_version(tmp_path)
    assert subject(certificates) == "second.example"


def test_pair_that_does_not_fit_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FIRST.write(tmp_path)
    certificates = load(tmp_path)
    with caplog.at_level(logging.INFO, "nnhal"):
        (tmp_path / "tls.crt").write_bytes(SECOND.cert)
        assert subject(certificates) == "first.example"
        assert subject(certificates) == "first.example"
        assert certificates.problem
        assert [record.getMessage() for record in caplog.records] == ["tls-not-reloaded"]  # once, not at each look
        assert "does not belong to the certificate" in caplog.records[0].nnhal_fields["why"]  # type: ignore[attr-defined]
        (tmp_path / "tls.key").write_bytes(SECOND.key)
        assert subject(certificates) == "second.example"
        assert not certificates.problem
        assert [record.getMessage() for record in caplog.records] == ["tls-not-reloaded", "tls-reloaded"]
    assert "PRIVATE" not in caplog.text


def test_files_that_vanish(tmp_path: Path) -> None:
    FIRST.write(tmp_path)
    certificates = load(tmp_path)
    (tmp_path / "tls.key").unlink()
    assert subject(certificates) == "first.example"
    (tmp_path / "tls.key").write_bytes(FIRST.key)
    assert subject(certificates) == "first.example"


def test_same_contents_are_not_loaded_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FIRST.write(tmp_path)
    certificates = load(tmp_path)
    with caplog.at_level(logging.INFO, "nnhal"):
        FIRST.replace(tmp_path)
        certificates.refresh()
    assert not caplog.records


def test_expired_certificate_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    AUTHORITY.issue(period="past").write(tmp_path)
    with caplog.at_level(logging.INFO, "nnhal"):
        load(tmp_path)
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert levels == {"tls-expired": "WARNING", "tls-loaded": "INFO"}


def test_unusable_files_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        load(tmp_path)
