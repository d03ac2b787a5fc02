"""The last release beside this one: clients of each on services of each, and one cache that both use in turns.

NNHAL_LAST_RELEASE names a commit in place of the newest tag before this commit.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE_ROOTS = ("client", "driver", "service", "cache", "tools")
THIS, LAST = "this", "last"
CLIENT = """
import sys, nnhal
from nnhal_tools.demo import digits
pictures, labels = digits.load_images()
images = digits.scale_pixels(pictures)[:3, None]
with nnhal.connect(sys.argv[1]) as device:
    prepared = device.prepare(digits.MODEL, cache=True).result()
    with prepared.burst() as burst:
        answers = [int(outputs[0].argmax()) for image in images
                   for outputs in (prepared.execute([image]), burst.execute([image]))]
    assert answers == [label for label in labels[:3].tolist() for _ in range(2)], answers
    print(prepared.cache.state.name)
"""


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Yield the folders of the sources of both releases."""
    commit = os.environ.get("NNHAL_LAST_RELEASE") or git("describe", "--tags", "--abbrev=0", "--match=v*", "HEAD~1")
    if not commit:
        pytest.skip("there is no earlier release: no tag v* before this commit")
    folder = tmp_path_factory.mktemp("releases") / "last"
    assert git("worktree", "add", "--detach", str(folder), commit) is not None
    yield {THIS: ROOT, LAST: folder}
    git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> str:
    """Run git. Return its output, or "" if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def variables(release: Path, **more: str) -> dict[str, str]:
    """Return the environment of a program of a release."""
    return {**os.environ, "PYTHONPATH": ":".join(str(release / name) for name in SOURCE_ROOTS), **more}


@contextmanager
def serving(release: Path, folder: Path) -> Iterator[str]:
    """Run a service, whose cache is in a folder. Yield its address."""
    environment = variables(release, NNHAL_CACHE_DIR=str(folder), PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", "nnhal_tools", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as it:
        assert it.stdout is not None
        try:
            yield it.stdout.readline().removeprefix("listening on ").strip()
        finally:
            it.terminate()


def use(release: Path, target: str) -> str:
    """Run a client. Return what the cache did for it."""
    command = [sys.executable, "-c", CLIENT, target]
    done = subprocess.run(command, env=variables(release), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.nightly
@pytest.mark.parametrize(("client", "service"), [(THIS, LAST), (LAST, THIS)])
def test_clients_of_one_release_use_services_of_the_other(
    releases: dict[str, Path], tmp_path: Path, client: str, service: str
) -> None:
    with serving(releases[service], tmp_path) as target:
        assert use(releases[client], target) == "SAVED"
        assert use(releases[client], target) == "HIT"


@pytest.mark.nightly
def test_upgrade_and_rollback_on_one_cache(releases: dict[str, Path], tmp_path: Path) -> None:
    """An entry of another release is a hit or a miss, and each release keeps what it saved after that."""
    for name in (LAST, THIS, LAST, THIS):
        with serving(releases[name], tmp_path) as target:
            assert use(releases[name], target) in ("SAVED", "HIT")
            assert use(releases[name], target) == "HIT"
