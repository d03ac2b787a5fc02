"""Folders in which certificates are replaced, for the layouts of Kubernetes, Certbot and others."""

from pathlib import Path

import pytest

from nnhal_service.tls.folders import is_shared, replacement_folders


def folders_of(path: Path) -> set[Path]:
    return {folder.resolve() for folder in replacement_folders(path)}


def test_plain_file(tmp_path: Path) -> None:
    assert folders_of(tmp_path / "tls.key") == {tmp_path.resolve()}


def test_links_as_in_kubernetes(tmp_path: Path) -> None:
    version = tmp_path / "..2026_01"
    version.mkdir()
    (version / "tls.key").touch()
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "tls.key").symlink_to("..data/tls.key")
    assert folders_of(tmp_path / "tls.key") == {tmp_path.resolve(), version.resolve()}


def test_links_as_of_certbot(tmp_path: Path) -> None:
    live, archive = tmp_path / "live/name", tmp_path / "archive/name"
    for folder in (live, archive):
        folder.mkdir(parents=True)
    (archive / "privkey1.pem").touch()
    (live / "privkey.pem").symlink_to("../../archive/name/privkey1.pem")
    assert folders_of(live / "privkey.pem") == {live.resolve(), archive.resolve()}


def test_link_to_one_of_several_versions(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "current").symlink_to("v1")
    (tmp_path / "v1/tls.key").touch()
    assert folders_of(tmp_path / "current/tls.key") == {(tmp_path / "v1").resolve(), tmp_path.resolve()}


def test_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "tls.key").symlink_to("tls.key")
    assert folders_of(tmp_path / "tls.key") == {tmp_path.resolve()}


@pytest.mark.parametrize("folder", ["/", "/etc", "/etc/ssl/private", "/tmp", "~", "~/.."])
def test_shared_folders(folder: str) -> None:
    assert is_shared(Path(folder).expanduser())


def test_folder_of_its_own(tmp_path: Path) -> None:
    assert not is_shared(tmp_path)
