"""Models by name: layouts, changes of files, and what goes wrong with them. Tests say when to look at the folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorKind
from nnhal_service.repository.repository import Repository, UnavailableModelError
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.service.repository.model_files import added, adding, put

Serving = Callable[..., AbstractContextManager[Repository]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


@pytest.fixture
def serving(tmp_path: Path, folder: Path) -> Serving:
    """Return a function that runs a service, which looks at the folder once by itself."""

    @contextmanager
    def run(**changed: Any) -> Iterator[Repository]:
        settings = {"cache_dir": tmp_path / "cache", "backends": ("CpuRef",), "models": str(folder), **changed}
        with Server(Settings(listen=("127.0.0.1:0",), models_poll_s=1e6, **settings)) as server:
            assert server.repository is not None
            yield server.repository

    return run


def states(repository: Repository) -> dict[str, str]:
    return {f"{each.name}/{each.version}": each.state.name.lower() for each in repository.index()}


def reason(repository: Repository, name: str) -> str:
    return next(each.reason for each in repository.index() if each.name == name and each.reason)


def test_layouts(folder: Path, serving: Serving) -> None:
    put(folder / "single.tflite", adding(1))
    put(folder / "numbered/1/model.tflite", adding(2))
    put(folder / "numbered/10/model.tflite", adding(3))
    put(folder / "numbered/010/model.tflite", adding(4))
    put(folder / "folder/any.tflite", adding(5))
    put(folder / ".hidden.tflite", adding(6))
    put(folder / "readme.txt", b"text")
    with serving() as repository:
        repository.check()
        assert list(states(repository)) == ["folder/1", "numbered/1", "numbered/10", "single/1"]
        assert set(states(repository).values()) == {"available"}
        assert [added(repository, name) for name in ("single", "numbered", "folder")] == [1, 3, 5]
        assert added(repository, "numbered", 1) == 2
        with pytest.raises(HalError, match="has no version 7; it has 1, 10") as caught:
            repository.get("numbered", 7)
        assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE
        with pytest.raises(HalError, match="'other' is not found"):
            repository.get("other")


def test_newest_version_although_an_older_one_is_in_memory(folder: Path, serving: Serving) -> None:
    put(folder / "a/1/model.tflite", adding(1))
    put(folder / "a/2/model.tflite", adding(2))
    with serving() as repository:
        assert [added(repository, "a", version) for version in (1, None, 1)] == [1, 2, 1]


def test_broken_file_does_not_replace_a_good_one(folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", adding(1))
    with serving() as repository:
        assert added(repository, "a") == 1
        put(folder / "a.tflite", adding(2)[:-8])
        repository.check()  # the file may be incomplete
        assert (added(repository, "a"), repository.index()[0].reason) == (1, "")
        repository.check()
        assert added(repository, "a") == 1
        assert "damaged or truncated" in reason(repository, "a")
        put(folder / "a.tflite", adding(3))
        repository.check()
        repository.check()
        assert (added(repository, "a"), repository.index()[0].reason) == (3, "")


def test_new_version_takes_over_when_it_is_loaded(folder: Path, serving: Serving) -> None:
    put(folder / "a/1/model.tflite", adding(1))
    with serving() as repository:
        first = repository.get("a")
        put(folder / "a/2/model.tflite", adding(2))
        put(folder / "a/3/model.tflite", b"no model")
        repository.check()
        repository.check()
        assert added(repository, "a") == 2
        assert states(repository) == {"a/1": "available", "a/2": "ready", "a/3": "failed"}
        assert first.prepared.inputs  # clients that use it may finish
        assert added(repository, "a", 1) == 1
        (folder / "a/2/model.tflite").unlink()
        repository.check()
        assert added(repository, "a") == 1


def test_vanished_version_is_replaced_by_another_on_demand(folder: Path, serving: Serving) -> None:
    put(folder / "a/1/model.tflite", adding(1))
    with serving() as repository:
        put(folder / "a/2/model.tflite", adding(2))
        (folder / "a/1/model.tflite").unlink()
        assert added(repository, "a") == 2


def test_model_that_nobody_uses_is_checked(folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", b"no model")
    with serving() as repository:
        repository.check()
        assert states(repository) == {"a/1": "failed"}
        assert "TFL3" in reason(repository, "a")
        with pytest.raises(UnavailableModelError, match=r"version 1: .*TFL3"):
            repository.get("a")


def test_configuration(folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", adding(1))
    put(folder / "a.toml", b'labels = ["cat", "dog"]\npriority = "high"\nwarm = true\n')
    with serving() as repository:
        repository.check()
        assert states(repository) == {"a/1": "ready"}
        served = repository.get("a")
        assert (served.config.labels, served.prepared.priority) == (("cat", "dog"), 2)
        put(folder / "a.toml", b"instances = 2")
        repository.check()
        repository.check()
        assert reason(repository, "a") == "a.toml: option instances: there is no such name"
        assert repository.get("a") is served


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (b"preference = 'fast'", "expected one of low_power"),
        (b"max_batch = 0", "option max_batch: invalid value 0: expected at least 1"),
        (b"device = 'gpu'", "there is no device 'gpu'; expected one of nnhal"),
        (b"[sha256]\n1 = '%s'" % (b"0" * 64), "has the SHA-256 .*; its configuration says 0000"),
        (b"signature = 'serve'", "has no signature 'serve'"),
        (b"labels = ", "a.toml: Invalid value"),
        (b"\xff", "a.toml: .*utf-8"),
        (b"labels = " + b"[" * 5000, "a.toml: its values are nested too deeply"),
        (b"a" + b". a" * 200_000 + b" = 1", "a.toml: the key .* has too many parts"),
    ],
)
def test_invalid_configuration(folder: Path, serving: Serving, config: bytes, problem: str) -> None:
    put(folder / "a.tflite", adding(1))
    put(folder / "a.toml", config)
    with serving() as repository, pytest.raises(UnavailableModelError, match=problem):
        repository.get("a")


def test_digest(folder: Path, serving: Serving) -> None:
    data = adding(1)
    put(folder / "a/7/model.tflite", data)
    put(folder / "a/config.toml", f"[sha256]\n7 = '{sha256(data).hexdigest()}'".encode())
    with serving() as repository:
        assert added(repository, "a") == 1


def test_links_stay_in_the_folder(tmp_path: Path, folder: Path, serving: Serving) -> None:
    put(folder / "..data/a.tflite", adding(1))
    put(tmp_path / "secret.tflite", adding(2))
    (folder / "a.tflite").symlink_to("..data/a.tflite")
    (folder / "b.tflite").symlink_to(tmp_path / "secret.tflite")
    os.mkfifo(folder / "c.tflite")
    (tmp_path / "link").symlink_to(folder)
    with serving(models=str(tmp_path / "link")) as repository:
        assert added(repository, "a") == 1
        with pytest.raises(UnavailableModelError, match="a link that leads out of the folder of models"):
            repository.get("b")
        with pytest.raises(UnavailableModelError, match="is not a file"):
            repository.get("c")


def test_files_with_other_names(folder: Path, serving: Serving) -> None:
    put(folder / "a/1/model.tflite", adding(1))
    put(folder / "a/2/other.tflite", adding(2))
    put(folder / "b/3/other.tflite", adding(3))
    put(folder / "c/x.tflite", adding(4))
    put(folder / "c/y.tflite", adding(5))
    put(folder / "d/x.tflite", adding(6))
    put(folder / "d/y.tflite", adding(7))
    put(folder / "d.tflite", adding(8))
    with serving() as repository:
        repository.check()
        assert states(repository) == dict.fromkeys(("a/2", "b/3", "c/1"), "failed") | {
            "a/1": "available",
            "d/1": "available",
        }
        assert reason(repository, "a") == "there is 2/other.tflite; expected 2/model.tflite"
        assert (added(repository, "a"), added(repository, "d")) == (1, 8)
        for name, problem in (
            ("b", "expected 3/model.tflite"),
            ("c", "there are x.tflite, y.tflite; expected one file"),
        ):
            with pytest.raises(UnavailableModelError, match=problem):
                repository.get(name)
        (folder / "b/3/other.tflite").rename(folder / "b/3/model.tflite")
        repository.check()
        assert added(repository, "b") == 3


def test_name_of_two_models(folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", adding(1))
    put(folder / "a/1/model.tflite", adding(2))
    with serving() as repository, pytest.raises(UnavailableModelError, match=r"both a\.tflite and a folder a"):
        repository.get("a")


def test_unload_and_load(folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", adding(1))
    with serving() as repository:
        assert added(repository, "a") == 1
        repository.unload("a")
        repository.check()
        assert states(repository) == {"a/1": "unloaded"}
        with pytest.raises(UnavailableModelError, match="'a' is unloaded"):
            repository.get("a")
        put(folder / "a.tflite", adding(2))
        repository.load("a")
        assert states(repository) == {"a/1": "ready"}
        assert added(repository, "a") == 2
        put(folder / "a.tflite", b"broken")
        with pytest.raises(UnavailableModelError, match="cannot be loaded"):
            repository.load("a")
        assert added(repository, "a") == 2
        for change in (repository.load, repository.unload):
            with pytest.raises(HalError, match="'b' is not found"):
                change("b")


def test_load_checks_broken_versions_again(folder: Path, serving: Serving) -> None:
    put(folder / "a/1/model.tflite", b"no model")
    put(folder / "a/2/model.tflite", adding(2))
    with serving() as repository:
        repository.check()
        repository.load("a")
        repository.check()
        assert states(repository) == {"a/1": "failed", "a/2": "ready"}


def test_workers_share_choices(tmp_path: Path, folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", adding(1))
    with serving() as one, serving() as other:
        for repository in (one, other):
            repository._choices._path = tmp_path / "choices.json"
        one.unload("a")
        other.check()
        assert states(other) == {"a/1": "unloaded"}
        other.load("a")
        one.check()
        assert added(one, "a") == 1


def test_folder_that_is_away_keeps_models(tmp_path: Path, folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", adding(1))
    with serving() as repository:
        assert added(repository, "a") == 1
        folder.rename(tmp_path / "away")
        repository.check()
        assert added(repository, "a") == 1
        with pytest.raises(UnavailableModelError, match="the folder of models cannot be read: No such file"):
            repository.load("a")
        (tmp_path / "away").rename(folder)
        (folder / "a.tflite").unlink()
        repository.check()
        with pytest.raises(HalError, match="is not found"):
            repository.get("a")


def test_restart_loads_from_the_cache(folder: Path, serving: Serving) -> None:
    put(folder / "a.tflite", adding(1))
    with serving() as repository:
        assert repository.get("a").prepared.loaded_from is None
    with serving() as repository:
        assert repository.get("a").prepared.loaded_from is not None
        assert added(repository, "a") == 1
