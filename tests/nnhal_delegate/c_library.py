"""TensorFlow Lite's C library of 2022, from npm, and the program of the tests that uses it."""

import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nnhal.types import AnyArray

PACKAGE = "tfjs-tflite-node@0.0.2"
FOLDER = Path(__file__).resolve().parents[2] / "build" / "tflite"
TIMEOUT_S = 600


def tflite_host() -> Path:
    """Return the program `host.c`, compiled once. Skips the test where the library cannot be installed."""
    program = FOLDER / "host"
    source = Path(__file__).with_name("host.c")
    if not program.is_file() or program.stat().st_mtime < source.stat().st_mtime:
        libraries = _install()
        link = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltensorflowlite_c", "-ldl"]
        _require("cc", "-Wall", "-Werror", str(source), "-o", str(program), *link)
    return program


def _install() -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    libraries = FOLDER / "package" / "cc_deps" / "linux_amd64"
    if not libraries.is_dir():
        _require("npm", "pack", "--pack-destination", str(FOLDER), PACKAGE)
        with tarfile.open(next(FOLDER.glob("*.tgz"))) as archive:
            archive.extractall(FOLDER, filter="data")
    return libraries


def _require(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not installed")
    if done.returncode != 0:
        pytest.skip(f"TensorFlow Lite's C library cannot be installed: {done.stderr.strip().splitlines()[-1:]}")


class HostError(Exception):
    """The program failed. The message is its standard error."""


def run_host(
    folder: Path, model: Path, delegate: str, inputs: Sequence[AnyArray], like: Sequence[AnyArray], **variables: str
) -> list[AnyArray]:
    """Run a model twice in the program, and return the outputs of the second run.

    Args:
        folder: place of the files of inputs and outputs.
        model: path of the .tflite file.
        delegate: "none", "nnapi", or the path of a delegate, which finds its service by NNHAL_TARGET.
        inputs: the inputs.
        like: arrays with the shapes and types of the outputs.
        variables: environment variables.

    Raises:
        HostError: the program failed.
    """
    source, target = folder / "inputs", folder / "outputs"
    source.write_bytes(b"".join(value.tobytes() for value in inputs))
    command = [str(tflite_host()), str(model), delegate, str(source), str(target)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode != 0 or not done.stdout.endswith("done\n"):
        raise HostError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    data = target.read_bytes()
    position, outputs = len(data) // 2, []
    for value in like:
        outputs.append(np.frombuffer(data, value.dtype, value.size, position).reshape(value.shape))
        position += value.nbytes
    assert position == len(data)
    return outputs
