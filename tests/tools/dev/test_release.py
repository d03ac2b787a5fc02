"""Files of a release: the checks of their contents, the version of a tag, and that two releases have the same bytes."""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.dev import release
from tools.dev.release import ROOT, ReleaseError, check_contents


def write_files(folder: Path, wheel: Sequence[str], sdist: Sequence[str]) -> tuple[Path, Path]:
    """Write an sdist and a wheel with empty files of these names."""
    with zipfile.ZipFile(folder / "nnhal.whl", "w") as archive:
        for name in wheel:
            archive.writestr(name, "")
    with tarfile.open(folder / "nnhal.tar.gz", "w:gz") as tar:
        for name in sdist:
            tar.addfile(tarfile.TarInfo(f"nnhal-1.0/{name}"), io.BytesIO())
    return folder / "nnhal.tar.gz", folder / "nnhal.whl"


def test_right_contents(tmp_path: Path) -> None:
    check_contents(*write_files(tmp_path, ["nnhal/a.py", "nnhal-1.0.dist-info/RECORD"], ["client/nnhal/a.py"]))


@pytest.mark.parametrize(
    ("wheel", "sdist", "message"),
    [
        (["nnhal/a.py"], ["client/nnhal/b.py"], "nnhal.tar.gz lacks nnhal/a.py, which nnhal.whl has"),
        (["tests/a.py"], ["tests/a.py"], "nnhal.whl contains tests/a.py"),
        (["nnhal/__pycache__/a.pyc"], [], "nnhal.whl contains nnhal/__pycache__/a.pyc"),
        (["other/a.py"], [], "nnhal.whl contains other/a.py"),
    ],
)
def test_wrong_contents(tmp_path: Path, wheel: Sequence[str], sdist: Sequence[str], message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        check_contents(*write_files(tmp_path, wheel, sdist))


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a clone whose HEAD has no tag."""
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-tags", "--depth=1", f"file://{ROOT}", folder], check=True)
    monkeypatch.setattr(release, "ROOT", folder)
    return folder


def test_version_comes_from_the_tag(clone: Path) -> None:
    version = release.find_version()
    assert ".dev0+g" in version
    subprocess.run(["git", "-C", clone, "tag", f"v{version.partition('.dev0')[0]}"], check=True)
    assert release.find_version() == version.partition(".dev0")[0]


def test_tag_of_another_version(clone: Path) -> None:
    subprocess.run(["git", "-C", clone, "tag", "v99.0"], check=True)
    with pytest.raises(ReleaseError, match=r"the tag is v99\.0, but client/nnhal/version\.py says "):
        release.find_version()


def test_changed_tree(clone: Path, tmp_path: Path) -> None:
    (clone / "README.md").write_text("")
    with pytest.raises(ReleaseError, match="the tree has changes"):
        release.make(tmp_path / "dist")


@pytest.mark.nightly
def test_two_releases_have_the_same_bytes(clone: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("first", "second"):
        command = [sys.executable, "-m", "tools.dev.release", str(tmp_path / name)]
        environment = {**os.environ, "PYTHONPATH": str(clone)}
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        digests.append((tmp_path / name / "SHA256SUMS").read_text())
    assert digests[0] == digests[1]
    assert {line.rpartition(".")[2] for line in digests[0].splitlines()} == {"gz", "whl", "json"}
