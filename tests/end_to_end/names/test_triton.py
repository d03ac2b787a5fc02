"""Triton's client, unmodified, with a service in another process. `make test-triton` installs it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.support.service_process import http_address, start_service, stop_service
from tests.service.repository.counting import counting
from tests.service.repository.model_files import adding, put

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / "build/triton/bin/python"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make test-triton` installs Triton's client")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Yield what the program of Triton's client has seen."""
    folder = tmp_path_factory.mktemp("triton")
    put(folder / "models/add/1/model.tflite", adding(1))
    put(folder / "models/add/config.toml", b'labels = ["cat", "dog"]')
    put(folder / "models/broken.tflite", b"no model")
    put(folder / "models/count.tflite", counting())
    options = ("--models", str(folder / "models"), "--models-shm", "--http-listen", "127.0.0.1:0")
    service = start_service(folder, *options)
    program = Path(__file__).with_name("triton_program.py")
    command = [str(PYTHON), "-P", str(program), service.target, http_address(service), "add"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert result.returncode == 0, result.stderr
        yield json.loads(result.stdout)
    finally:
        stop_service(service)


def test_health_and_metadata(seen: dict[str, Any]) -> None:
    assert (seen["health"], seen["unknown is ready"]) == ([True, True, True], False)
    assert (seen["server"]["name"], seen["config"]) == ("nnhal", "add")
    tensor = {"datatype": "FP32", "shape": ["2"]}
    assert seen["metadata"] == {
        "name": "add",
        "versions": ["1"],
        "platform": "tensorflow_lite",
        "inputs": [{"name": "x", **tensor}],
        "outputs": [{"name": "y", **tensor}],
    }


def test_requests(seen: dict[str, Any]) -> None:
    assert seen["infer"] == seen["compressed"] == seen["asynchronous"] == seen["asyncio"] == [2, 3]
    assert seen["options"] == ["seven", "1", [2, 3]]
    assert seen["classes"] == ["3.000000:1:dog"]


def test_errors(seen: dict[str, Any]) -> None:
    codes = {name: seen[name][0] for name in ("unknown", "version", "shape")}
    assert codes == {
        "unknown": "StatusCode.NOT_FOUND",
        "version": "StatusCode.NOT_FOUND",
        "shape": "StatusCode.INVALID_ARGUMENT",
    }
    assert "unexpected shape for input 'x' for model 'add'. Expected [2], got [3]" in seen["shape"][1]


def test_repository(seen: dict[str, Any]) -> None:
    add, broken, count = seen["index"]
    assert count["state"] == "READY"
    assert add == {"name": "add", "version": "1", "state": "READY"}
    assert (broken["state"], "TFL3" in broken["reason"]) == ("UNAVAILABLE", True)
    assert seen["unloaded"][:2] == [False, "StatusCode.UNAVAILABLE"]
    assert seen["loaded"] is True


def test_http_says_the_same(seen: dict[str, Any]) -> None:
    http = seen["http"]
    assert (http["health"], http["unknown is ready"]) == ([True, True, True], False)
    assert http["server"] == seen["server"]
    tensor = {"datatype": "FP32", "shape": [2], "parameters": {}}
    assert http["metadata"] == seen["metadata"] | {
        "inputs": [{"name": "x"} | tensor],
        "outputs": [{"name": "y"} | tensor],
    }
    assert (http["config"]["name"], http["config"]["input"][0]["data_type"]) == ("add", "TYPE_FP32")
    assert [row | {"reason": ""} for row in http["index"]] == [row | {"reason": ""} for row in seen["index"]]


def test_http_requests(seen: dict[str, Any]) -> None:
    http = seen["http"]
    assert http["infer"] == [[2, 3]] * 6
    assert http["compressed"] == [[2, 3]] * 9
    assert http["asynchronous"] == http["asyncio"] == [2, 3]
    assert http["options"] == seen["options"]
    assert http["classes"] == seen["classes"] * 2


def test_http_errors_and_repository(seen: dict[str, Any]) -> None:
    http = seen["http"]
    assert {name: http[name][0] for name in ("unknown", "version", "shape")} == {
        "unknown": "404",
        "version": "404",
        "shape": "400",
    }
    assert http["shape"][1] == seen["shape"][1]
    assert (http["unloaded"][:2], http["loaded"]) == ([False, "503"], True)


@pytest.mark.parametrize("transport", ["gRPC", "HTTP"])
def test_extensions(seen: dict[str, Any], transport: str) -> None:
    seen = seen if transport == "gRPC" else seen["http"]
    extensions = seen["extensions"]
    assert extensions["sequence"] == [[1, 2], [2, 4], [3, 6]]
    assert "must specify the START flag" in extensions["unstarted"][1]
    assert extensions["shared"] == [1, 2, 2, 3]
    assert "already in manager" in extensions["again"][0]
    assert "Unable to find system shared memory region: 'tensors'" in extensions["unregistered"][0]
    assert "Unable to open shared memory region" in extensions["missing"][0]
    assert not seen["regions"]
    assert seen["statistics"] == {"name": "add", "version": "1", "counted": True}


def test_stream(seen: dict[str, Any]) -> None:
    first, error, last = seen["stream"]
    assert (first, last) == ([1, 2], [2, 4])
    assert "model 'other' is not found" in error
