"""The container image, built from the Dockerfile and run without a container engine.

`NNHAL_IMAGE=FOLDER` names an image that `python -m tools.dev.container_image FOLDER` has built before.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nnhal
from tests.concurrency import wait_until
from tests.end_to_end.support.models import ADD
from tools.dev import container_image, release_rootfs

pytestmark = pytest.mark.nightly

ONES = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the image."""
    missing = [program for program in container_image.PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, and {', '.join(missing) or 'nothing else'}")
    if "NNHAL_IMAGE" in os.environ:
        return Path(os.environ["NNHAL_IMAGE"])
    folder = tmp_path_factory.mktemp("image") / "nnhal"
    container_image.build(folder)
    return folder


class Container:
    """A container with a volume of its own, and a temporary folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self._volume, self._temporary = folder / "volume", folder / "tmp"
        for path in (self._volume, self._temporary):
            path.mkdir()
            path.chmod(0o1777)

    def command(self, user: int, *program: str) -> list[str]:
        mounts = {"/var/lib/nnhal": self._volume, "/tmp": self._temporary}
        variables = {"NNHAL_LISTEN": "127.0.0.1:0,unix:/tmp/nnhal.sock"}
        return container_image.command_in(self._image, user, mounts, variables, program)

    def succeeds(self, user: int, *program: str) -> bool:
        done = subprocess.run(self.command(user, *program), capture_output=True, timeout=60, check=False)
        return done.returncode == 0

    @contextmanager
    def serving(self, user: int) -> Iterator[tuple[str, Path]]:
        """Run the service. At the end, check that it stops with code 0."""
        log = self._temporary / f"log-{user}"
        with log.open("w") as output:
            process = subprocess.Popen(self.command(user), stdout=output, stderr=subprocess.STDOUT)
        try:
            assert wait_until(lambda: "listening on unix:" in log.read_text() or process.poll() is not None, 60)
            lines = [line for line in log.read_text().splitlines() if line.startswith("listening on 127.0.0.1:")]
            assert len(lines) == 1, log.read_text()
            yield lines[0].rpartition(" ")[2], log
        finally:
            (service,) = _children(process.pid)
            subprocess.run(["kill", "-TERM", str(_children(service)[0])], check=True)
            assert process.wait(60) == 0, log.read_text()


def _children(process: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def prepare(target: str) -> None:
    with nnhal.connect(target, timeout=60) as device, device.prepare(ADD, cache=True).result(60) as prepared:
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], ONES + ONES)


def test_image_serves_any_user_and_keeps_its_cache(image: Path, tmp_path: Path) -> None:
    container = Container(image, tmp_path)
    assert not container.succeeds(10001, "healthcheck")
    with container.serving(10001) as (target, log):
        assert container.succeeds(10001, "healthcheck")
        assert not container.succeeds(10001, "touch", "/opt/nnhal/file")
        prepare(target)
        assert '"cache": "saved"' in log.read_text()
    assert not container.succeeds(10001, "healthcheck")
    with container.serving(10001) as (target, log):
        prepare(target)
        assert '"cache": "hit"' in log.read_text() and '"cache": "saved"' not in log.read_text()
        assert "sandbox-incomplete" not in log.read_text()

    (tmp_path / "other").mkdir()
    other = Container(image, tmp_path / "other")
    with other.serving(23456) as (target, log):
        assert other.succeeds(23456, "healthcheck")
        prepare(target)
        assert '"cache": "saved"' in log.read_text()


def test_image_becomes_a_file_of_a_release(image: Path, tmp_path: Path) -> None:
    archives = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        archives.append(release_rootfs.make(tmp_path / name, image).read_bytes())  # and tries it
    assert archives[0] == archives[1]
    assert "rootfs.tar.gz" in (tmp_path / "first" / "SHA256SUMS").read_text()


def test_image_is_small_and_has_no_tools_of_the_build(image: Path) -> None:
    root = image / "root"
    usage = subprocess.check_output(["du", "-sm", root], text=True).split()[0]
    assert int(usage) < 450
    assert not list(root.glob("opt/nnhal/lib/python3*/site-packages/pip"))
    assert not (root / "usr/bin/gcc").exists() and not (root / "opt/build").exists()
