"""Models in a bucket of a real S3 server, which may die or be slow at any time. Needs moto[server] and s3fs."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import nnhal
from tests.concurrency import wait_until
from tests.end_to_end.names.model_answers import added, reasons
from tests.end_to_end.service.s3_server import S3Server, running_s3
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.service.repository.model_files import adding

for _package in ("s3fs", "moto", "flask"):
    pytest.importorskip(_package, reason="needs moto[server] and s3fs")
pytestmark = pytest.mark.nightly


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with running_s3(tmp_path / "s3.log") as server:
        yield server


@pytest.fixture
def files(s3: S3Server) -> Any:
    return s3.files()


def start(folder: Path, s3: S3Server) -> Service:
    options = ["--models", "s3://bucket/models", "--models-poll-s", "0.2", "--backends", "CpuRef"]
    return start_service(folder, *options, NNHAL_STATE_DIR=str(folder / "state"), **s3.environment)


@pytest.fixture
def service(tmp_path: Path, s3: S3Server, files: Any) -> Iterator[Service]:
    files.pipe_file("bucket/models/add/1/model.tflite", adding(1))
    running = start(tmp_path, s3)
    yield running
    stop_service(running)


def test_models_appear_and_change(s3: S3Server, files: Any, service: Service) -> None:
    with nnhal.connect(service.target) as device:
        assert wait_until(lambda: added(device, "add") == 1, 120)
        files.pipe_file("bucket/models/add/2/model.tflite", adding(2))
        assert wait_until(lambda: added(device, "add") == 2, 120)
        files.pipe_file("bucket/models/add/3/model.tflite", adding(3)[:-8])
        assert wait_until(lambda: "truncated" in reasons(device).get("add/3", ""), 120)
        assert added(device, "add") == 2
        files.pipe_file("bucket/models/add/2/model.tflite", adding(4))  # as large as before
        assert wait_until(lambda: added(device, "add", 2) == 4, 120)
        files.rm("bucket/models/add/2", recursive=True)
        assert wait_until(lambda: added(device, "add") == 1, 120)
    assert "mirror-died" not in service.log.read_text()


def test_hostile_bucket_does_no_harm(tmp_path: Path, s3: S3Server, files: Any, service: Service) -> None:
    with nnhal.connect(service.target) as device:
        assert wait_until(lambda: added(device, "add") == 1, 120)
        before = sorted(os.listdir(tmp_path / "state"))
        for name in ("a//b.tflite", "a\n.tflite", "x" * 500 + ".tflite", ".lock", "/out.tflite", "a/../../out.tflite"):
            with suppress(FileNotFoundError):  # clients may resolve dots; the unit test has such names, too
                files.call_s3("put_object", Bucket="bucket", Key=f"models/{name}", Body=adding(1))
        files.call_s3("put_object", Bucket="bucket", Key="models/both.tflite", Body=adding(1))
        files.call_s3("put_object", Bucket="bucket", Key="models/both.tflite/1/model.tflite", Body=adding(1))
        for number in range(1500):  # two pages
            files.call_s3("put_object", Bucket="bucket", Key=f"models/{number}.txt", Body=b"")
        files.pipe_file("bucket/models/last.tflite", adding(5))
        assert wait_until(lambda: added(device, "last") == 5, 300)
        assert {each.name for each in device.models()} <= {"add", "last", "both", "both.tflite"}
    assert sorted(os.listdir(tmp_path / "state")) == before
    assert not list(tmp_path.rglob("out.tflite"))
    assert "mirror-died" not in service.log.read_text()


def test_server_may_hang_die_and_come_back_empty(tmp_path: Path, s3: S3Server, files: Any) -> None:
    files.pipe_file("bucket/models/add/1/model.tflite", adding(1))
    first = start(tmp_path, s3)
    with nnhal.connect(first.target) as device:
        assert wait_until(lambda: added(device, "add") == 1, 120)
        s3.signal(signal.SIGSTOP)
        assert wait_until(lambda: "s3://bucket/models is not copied" in reasons(device).get("add/1", ""), 300)
        assert added(device, "add") == 1
        s3.close()
    stop_service(first)
    second = start(tmp_path, s3)
    try:
        with nnhal.connect(second.target) as device:
            assert added(device, "add") == 1, "without a network"
            assert wait_until(lambda: second.logged("mirror-failed"), 120)
            s3.start()
            files = s3.files()  # an empty bucket
            assert wait_until(lambda: "there are no models" in reasons(device).get("add/1", ""), 300)
            assert added(device, "add") == 1
            files.pipe_file("bucket/models/add/2/model.tflite", adding(2))
            assert wait_until(lambda: added(device, "add") == 2, 300)
            assert wait_until(lambda: not reasons(device), 60)
    finally:
        stop_service(second)
    assert "mirror-died" not in second.log.read_text()
