"""Files of the other servers, and servers that cannot be had."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmark.peers.__main__ import make_inputs
from tests.benchmark.peers.environment import Environment, Unavailable, site_packages
from tests.benchmark.peers.model_description import describe
from tests.benchmark.peers.servers import Command, prepare_mlserver, prepare_triton, run_server
from tests.tools.cli.command import DIGITS


def test_description() -> None:
    (input_,), (output,) = describe(DIGITS)
    assert (input_.name, output.name) == ("input_0", "output_0")
    assert np.prod(input_.shape) > np.prod(output.shape) > 1


def test_triton_repository(tmp_path: Path) -> None:
    triton = site_packages(tmp_path / "env") / "pytriton/tritonserver"
    (triton / "backends/python").mkdir(parents=True)
    stub = triton / f"python_backend_stubs/{site_packages(tmp_path).parts[-2].removeprefix('python')}"
    stub.mkdir(parents=True)
    (stub / "triton_python_backend_stub").touch()
    command = prepare_triton(tmp_path / "env", tmp_path / "files", DIGITS)
    config = (tmp_path / "files/models/model/config.pbtxt").read_text()
    assert 'name: "input_0" data_type: TYPE_' in config and (tmp_path / "files/models/model/1/model.py").is_file()
    assert (tmp_path / "files/backends/python/triton_python_backend_stub").is_file()
    assert f"--grpc-port={command.port}" in command.words


def test_mlserver_settings(tmp_path: Path) -> None:
    command = prepare_mlserver(tmp_path / "env", tmp_path / "files", DIGITS)
    assert json.loads((tmp_path / "files/settings.json").read_text())["grpc_port"] == command.port
    assert json.loads((tmp_path / "files/model-settings.json").read_text())["name"] == "model"


def test_inputs(tmp_path: Path) -> None:
    size = make_inputs(DIGITS, tmp_path / "i.npz")
    with np.load(tmp_path / "i.npz") as file:
        (input_,) = describe(DIGITS)[0]
        assert list(file["arr_0"].shape) == list(input_.shape) and size > 0


@pytest.mark.nightly
def test_server_that_cannot_be_installed(tmp_path: Path) -> None:
    environment = Environment("none", (str(tmp_path / "no-such-folder"),))
    with pytest.raises(Unavailable, match="none: "):
        environment.create(tmp_path)


def test_server_that_does_not_start(tmp_path: Path) -> None:
    def prepare(environment: Path, folder: Path, model: Path) -> Command:
        folder.mkdir()
        return Command(["sh", "-c", "echo 'no luck'; exit 1"], {}, 1)

    with pytest.raises(Unavailable, match="no luck"), run_server(tmp_path, prepare, tmp_path / "files", DIGITS):
        pass
