"""The last release beside this one: clients of each on services of each, one cache in turns, and one fleet of both.

NNHAL_LAST_RELEASE names a commit in place of the newest tag before this commit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.concurrency import wait_until

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
def serving(release: Path, folder: Path, *options: str) -> Iterator[str]:
    """Run a service, whose cache, state and log are in a folder. Yield its address."""
    folders = {"NNHAL_CACHE_DIR": str(folder), "NNHAL_STATE_DIR": str(folder / "state")}
    environment = variables(release, **folders, PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", "nnhal_tools", "serve", "--listen", "127.0.0.1:0", *options]
    with (
        (folder / "log").open("a") as log,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True) as it,
    ):
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


@pytest.mark.nightly
def test_one_fleet_of_both(releases: dict[str, Path], tmp_path: Path) -> None:
    """A member of either release sends clients of both to the other one."""
    sockets = {name: f"unix:{tmp_path / name}/admin.sock" for name in (THIS, LAST)}
    options = ("--fleet-peers", ",".join(sockets.values()), "--backends", "CpuRef")

    def nnhal(name: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "nnhal_tools", *arguments, "--target", sockets[name]]
        return subprocess.run(command, env=variables(releases[name]), capture_output=True, text=True, check=True).stdout

    def sees_both(name: str) -> bool:
        members = json.loads(nnhal(name, "fleet", "status", "--json"))["members"]
        return sum(not member["draining"] for member in members) == len(sockets)

    with ExitStack() as stack:
        targets = {}
        for name, socket in sockets.items():
            (tmp_path / name).mkdir()
            member = serving(releases[name], tmp_path / name, "--admin-listen", socket, *options)
            targets[name] = stack.enter_context(member)
        for sender in sockets:
            assert all(wait_until(partial(sees_both, name), 60) for name in sockets)
            nnhal(sender, "admin", "drain")
            for client in sockets:
                use(releases[client], targets[sender])
            assert (tmp_path / sender / "log").read_text().count("session-placed") == 2
            nnhal(sender, "admin", "resume")
