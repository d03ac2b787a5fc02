"""Models that clients push: versions, rights, quotas, and what a push leaves that fails."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnhal
from nnhal.types import ErrorKind
from nnhal_service.identity.policy import IdentityRules, Policy
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.concurrency import run_concurrently
from tests.service.repository.model_files import adding, put

Serving = Callable[..., AbstractContextManager[nnhal.Device]]
ONES = np.ones(2, np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


@pytest.fixture
def serving(tmp_path: Path, folder: Path) -> Serving:
    """Return a function that runs a service, whose default policy has some rules, and connects to it."""

    @contextmanager
    def run(*, models_push: bool = True, **rules: Any) -> Iterator[nnhal.Device]:
        settings = Settings(
            listen=("127.0.0.1:0",),
            cache_dir=tmp_path / "cache",
            backends=("CpuRef",),
            models=str(folder),
            models_poll_s=1e6,
            models_push=models_push,
            policy=Policy(default=IdentityRules(**rules)),
        )
        with Server(settings) as server, nnhal.connect(server.addresses[0]) as device:
            yield device

    return run


def added(device: nnhal.Device, name: str, version: int | None = None) -> float:
    return float(device.model(name, version).execute([ONES])[0][0]) - 1


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_versions(folder: Path, serving: Serving) -> None:
    with serving() as device:
        assert device.push_model("a", adding(1), config=b'labels = ["one"]') == 1
        assert device.push_model("a", adding(7), version=7) == 7
        assert device.push_model("a", adding(8)) == 8
        assert [added(device, "a", version) for version in (None, 1, 7)] == [8, 1, 7]
        assert device.model("a").labels == ("one",)
        pulled = device.pull_model("a", 7)
        assert (pulled.version, pulled.data, pulled.config) == (7, adding(7), b'labels = ["one"]')
        assert device.pull_model("a").version == 8
        device.remove_model("a", 8)
        assert added(device, "a") == 7
        device.remove_model("a")
        assert (device.models(), files(folder)) == ([], [".push.lock"])
        assert device.push_model("a", adding(2)) == 1


def test_a_push_may_be_repeated(serving: Serving) -> None:
    with serving() as device:
        assert [device.push_model("a", adding(1)) for _ in range(3)] == [1, 1, 1]
        assert device.push_model("a", adding(1), version=1) == 1
        with pytest.raises(nnhal.HalError, match="model 'a' has a version 1 with other contents"):
            device.push_model("a", adding(2), version=1)


def test_largest_version(folder: Path, serving: Serving) -> None:
    with serving() as device:
        assert device.push_model("a", adding(1), version=2**63 - 1) == 2**63 - 1
        with pytest.raises(nnhal.HalError, match="none can be larger"):
            device.push_model("a", adding(2))
        assert files(folder / "a") == [f"{2**63 - 1}/model.tflite"]


def test_pull_from_a_folder_that_is_away(folder: Path, serving: Serving) -> None:
    with serving() as device:
        folder.rmdir()
        with pytest.raises(nnhal.HalError, match="the folder of models cannot be read: No such file"):
            device.pull_model("a")


def test_invalid_names(folder: Path, serving: Serving) -> None:
    with serving() as device:
        for name in ("", ".hidden", "..", "../a", "a/b", "a.tflite", "a.toml", "a\n", "a\x00", "x" * 300, " a"):
            with pytest.raises(nnhal.HalError, match="cannot name a model"):
                device.push_model(name, adding(1))
    assert files(folder) == []


def test_what_cannot_be_used_is_refused(folder: Path, serving: Serving) -> None:
    put(folder / "single.tflite", adding(1))
    with serving() as device:
        for name, data, config, reason in (
            ("a", b"no model", None, "the model cannot be used: is not a .tflite file"),
            ("a", adding(1)[:-8], None, "the model cannot be used"),
            ("a", adding(1), b"max_batch = 0", "the configuration cannot be used: option max_batch"),
            ("a", adding(1), b"\xff", "the configuration cannot be used"),
            ("a", adding(1), b'device = "other"', "other"),
            ("single", adding(2), None, "is a single file, which has no versions"),
        ):
            with pytest.raises(nnhal.HalError, match=reason):
                device.push_model(name, data, config=config)
        with pytest.raises(nnhal.HalError, match="version is -1"):
            device.push_model("a", adding(1), version=-1)
        assert files(folder) == [".push.lock", "single.tflite"]
        for call in (device.pull_model, device.remove_model):
            for name, version in (("other", None), ("single", 2)):
                with pytest.raises(nnhal.HalError) as caught:
                    call(name, version)
                assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE
        device.remove_model("single")
        assert device.models() == []


def test_failed_push_leaves_nothing(folder: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "a/.push-of-a-crash/model.tflite", adding(5))

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with serving() as device:
        device.push_model("a", adding(1))
        assert files(folder) == [".push.lock", "a/1/model.tflite"]
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(nnhal.HalError, match="folder of models cannot be written: No space left"):
                device.push_model("a", adding(2))
        assert files(folder) == [".push.lock", "a/1/model.tflite"]
        assert added(device, "a") == 1
        assert device.push_model("a", adding(2)) == 2


def test_rights(folder: Path, serving: Serving) -> None:
    put(folder / "other/1/model.tflite", adding(1))
    with serving(push_models=("team-*",), manage_models=False) as device:
        assert device.push_model("team-a", adding(1)) == 1
        calls = (lambda: device.push_model("other", adding(2)), lambda: device.pull_model("other"))
        for call in (*calls, lambda: device.remove_model("other")):
            with pytest.raises(nnhal.HalError, match="may not push model 'other'") as caught:
                call()
            assert caught.value.kind == ErrorKind.PERMISSION_DENIED
        assert added(device, "other") == 1
    for rules in ({"manage_models": False}, {"models": ("b",)}, {"models": ("b",), "push_models": ("a",)}):
        with serving(**rules) as device, pytest.raises(nnhal.HalError) as caught:
            device.push_model("a", adding(1))
        assert caught.value.kind == ErrorKind.PERMISSION_DENIED
    with serving(models_push=False) as device, pytest.raises(nnhal.HalError, match="--models-push"):
        device.push_model("a", adding(1))


def test_quotas(serving: Serving) -> None:
    size = len(adding(1))
    with serving(push_models=("a*",), pushed_versions=2, pushed_bytes=3 * size) as device:
        device.push_model("a", adding(1))
        device.push_model("a", adding(2))
        with pytest.raises(nnhal.HalError, match="may push names with 2 versions; its quota is 2") as caught:
            device.push_model("ab", adding(3))
        assert caught.value.limit == "identity_pushed_versions"
        device.remove_model("a", 1)
        device.push_model("ab", adding(3))
    with serving(pushed_bytes=size) as device, pytest.raises(nnhal.HalError) as caught:
        device.push_model("b", adding(1))
    assert caught.value.limit == "identity_pushed_bytes"


def test_concurrent_pushes_get_versions_of_their_own(serving: Serving) -> None:
    pushed: list[tuple[int, int]] = []
    with serving() as device:
        run_concurrently(6, lambda number: pushed.append((device.push_model("a", adding(number)), number)))
        assert sorted(version for version, _ in pushed) == [1, 2, 3, 4, 5, 6]
        assert all(added(device, "a", version) == number for version, number in pushed)
