"""Models at a URL: a service copies them, and serves the copies whatever happens to the URL."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import nnhal
from nnhal.types import ErrorKind, NamedModelState
from tests.concurrency import wait_until
from tests.end_to_end.names.model_answers import added, reasons
from tests.end_to_end.support.service_process import Service, helper_pid, start_service, stop_service
from tests.service.repository.model_files import adding, put

pytest.importorskip("fsspec", reason="the extra `share` is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("url")
    put(path / "bucket/add/1/model.tflite", adding(1))
    put(path / "bucket/large.tflite", bytes(2**20 + 1))
    return path


def start(folder: Path) -> Service:
    """Start a service with models at a URL that fsspec reads as any other: its process may read the folder."""
    return start_service(
        folder,
        *("--models", f"local://{folder}/bucket", "--models-poll-s", "0.05", "--models-bytes", "1048576"),
        *("--backends", "CpuRef"),
        NNHAL_STATE_DIR=str(folder / "state"),
    )


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    running = start(folder)
    yield running
    stop_service(running)


def test_models_appear_and_change(folder: Path, service: Service) -> None:
    with nnhal.connect(service.target) as device:
        assert wait_until(lambda: added(device, "add") == 1, 60)
        put(folder / "bucket/add/2/model.tflite", adding(2))
        assert wait_until(lambda: added(device, "add") == 2, 60)
        put(folder / "bucket/add/3/model.tflite", b"no model")
        assert wait_until(lambda: "TFL3" in reasons(device).get("add/3", ""), 60)
        assert added(device, "add") == 2


def test_file_that_is_not_copied_is_in_the_list_with_its_reason(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        assert wait_until(lambda: "large/1" in reasons(device), 60)
        (entry,) = (each for each in device.models() if each.name == "large")
        assert entry.state == NamedModelState.FAILED
        assert entry.reason.startswith("large.tflite is not copied: it has 1048577 bytes")
        with pytest.raises(nnhal.HalError, match=r"large\.tflite is not copied"):
            device.model("large")


def test_process_that_dies_is_replaced(folder: Path, service: Service) -> None:
    first = helper_pid(service, "nnhal-mirror")
    os.kill(first, signal.SIGKILL)
    helper_pid(service, "nnhal-mirror", other_than=first)
    with nnhal.connect(service.target) as device:
        put(folder / "bucket/later.tflite", adding(7))
        assert wait_until(lambda: added(device, "later") == 7, 60)


def test_pushes_are_refused(service: Service) -> None:
    with (
        nnhal.connect(service.target) as device,
        pytest.raises(nnhal.HalError, match="copies its models from") as caught,
    ):
        device.push_model("add", adding(1))
    assert caught.value.kind == ErrorKind.PERMISSION_DENIED
    assert "local://" in caught.value.reason


def test_copies_are_served_without_the_url(tmp_path: Path) -> None:
    put(tmp_path / "bucket/add/1/model.tflite", adding(1))
    first = start(tmp_path)
    with nnhal.connect(first.target) as device:
        assert wait_until(lambda: added(device, "add") == 1, 60)
        os.rename(tmp_path / "bucket", tmp_path / "away")
        assert wait_until(lambda: "local://" in reasons(device).get("add/1", ""), 60)
        assert added(device, "add") == 1
    stop_service(first)
    second = start(tmp_path)
    try:
        with nnhal.connect(second.target) as device:
            assert added(device, "add") == 1
            assert "is not copied: FileNotFoundError" in reasons(device)["add/1"]
            assert device.models()[0].state == NamedModelState.READY
            os.rename(tmp_path / "away", tmp_path / "bucket")
            put(tmp_path / "bucket/add/2/model.tflite", adding(2))
            assert wait_until(lambda: added(device, "add") == 2, 60)
            assert wait_until(lambda: not reasons(device), 60)
    finally:
        stop_service(second)
    assert "mirror-died" not in second.log.read_text()
