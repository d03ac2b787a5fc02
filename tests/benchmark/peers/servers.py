"""The servers: how they are installed and started."""

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnhal.cpu import available_cpus
from tests.benchmark.peers.environment import Environment, Unavailable, site_packages
from tests.benchmark.peers.model_description import ProtocolTensor, describe

_START_S = 120
_STOP_S = 20
_FILES = Path(__file__).parent

TRITON = Environment("triton", ("nvidia-pytriton==0.7.0", "tritonclient[grpc]==2.73.0", "ai-edge-litert==2.3.0"))
MLSERVER = Environment("mlserver", ("mlserver==1.7.1", "ai-edge-litert==2.3.0", "setuptools<81", "uvloop<0.22"))


@dataclass(frozen=True)
class Command:
    """Command that starts a server.

    Attributes:
        words: the command.
        variables: environment variables.
        port: where gRPC listens.
    """

    words: Sequence[str]
    variables: Mapping[str, str]
    port: int


PrepareServer = Callable[[Path, Path, Path], Command]
"""Writes the files of a server. Arguments: its environment, a folder of its own, and the model."""


def _tensors_text(field: str, tensors: Sequence[ProtocolTensor]) -> str:
    entries = [
        f'{{ name: "{each.name}" data_type: TYPE_{each.datatype} dims: {list(each.shape)} }}' for each in tensors
    ]
    return f"{field} [{', '.join(entries)}]"


def prepare_triton(environment: Path, folder: Path, model: Path) -> Command:
    """Write a model repository for Triton's Python backend, with one instance for each core."""
    packages = site_packages(environment)
    triton = packages / "pytriton/tritonserver"
    backends = folder / "backends/python"
    shutil.copytree(triton / "backends/python", backends)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(triton / f"python_backend_stubs/{version}/triton_python_backend_stub", backends)
    repository = folder / "models/model"
    (repository / "1").mkdir(parents=True)
    shutil.copy(_FILES / "triton_model.py", repository / "1/model.py")
    inputs, outputs = describe(model)
    config = ['name: "model"', 'backend: "python"', _tensors_text("input", inputs), _tensors_text("output", outputs)]
    config.append(f"instance_group [{{ count: {available_cpus()} kind: KIND_CPU }}]")
    (repository / "config.pbtxt").write_text("\n".join(config))
    port = _free_port()
    words = [str(triton / "bin/tritonserver"), f"--model-repository={folder / 'models'}"]
    words += [f"--backend-directory={folder / 'backends'}", f"--grpc-port={port}", "--grpc-address=127.0.0.1"]
    words += ["--allow-http=false", "--allow-metrics=false", "--log-info=false"]
    folders = [sysconfig.get_config_var("LIBDIR"), packages / "nvidia_pytriton.libs"]
    libraries = os.pathsep.join([*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")])
    return Command(words, {"PEER_PACKAGES": str(packages), "LD_LIBRARY_PATH": libraries}, port)


def prepare_mlserver(environment: Path, folder: Path, model: Path) -> Command:
    """Write the settings of MLServer, with one worker process for each core."""
    port = _free_port()
    settings: dict[str, Any] = {
        "host": "127.0.0.1",
        "http_port": _free_port(),
        "grpc_port": port,
        "metrics_port": _free_port(),
        "parallel_workers": available_cpus(),
        "debug": False,
    }
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(settings))
    model_settings = {"name": "model", "implementation": "mlserver_runtime.LiteRTRuntime"}
    (folder / "model-settings.json").write_text(json.dumps(model_settings))
    shutil.copy(_FILES / "mlserver_runtime.py", folder)
    return Command([str(environment / "bin/mlserver"), "start", str(folder)], {"PYTHONPATH": str(folder)}, port)


def prepare_nnhal(environment: Path, folder: Path, model: Path, workers: int = 1) -> Command:
    """Write a folder with the model for a service. As for Triton, its log has no calls."""
    (folder / "models").mkdir(parents=True)
    shutil.copy(model, folder / "models/model.tflite")
    port = _free_port()
    words = [str(environment / "bin/nnhal"), "serve", f"--listen=127.0.0.1:{port}", f"--workers={workers}"]
    words += [f"--models={folder / 'models'}", "--models-shm", "--log-level=warning"]
    return Command([*words, f"--state-dir={folder / 'state'}", "--cache-bytes=0"], {}, port)


@contextmanager
def run_server(environment: Path, prepare: PrepareServer, folder: Path, model: Path) -> Iterator[str]:
    """Run a server for one model, and yield its address.

    Args:
        environment: folder of its environment.
        prepare: writes its files.
        folder: folder for its files and its log, which must not exist.
        model: the model.

    Raises:
        Unavailable: it does not start.
    """
    command = prepare(environment, folder, model)
    variables = {**os.environ, **command.variables, "PEER_MODEL": str(model)}
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command.words, env=variables, stdout=output, stderr=output, cwd=folder, start_new_session=True
        )
    try:
        _wait(process, command.port, log)
        yield f"127.0.0.1:{command.port}"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
    raise Unavailable(f"it does not start: {last}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
