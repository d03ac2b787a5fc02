"""Files that are replaced while others read them."""

from pathlib import Path

import pytest

from nnhal_service.replaced_files import file_version, replace_file


def test_replacement_has_another_version(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert file_version(path) is None
    replace_file(path, b"one")
    first = file_version(path)
    replace_file(path, b"two")
    assert path.read_bytes() == b"two" and file_version(path) != first


def test_failure_leaves_the_old_contents_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(OSError, match="file"):
        replace_file(path, b"new")
    assert [*tmp_path.iterdir()] == [path] and path.is_dir()
