"""`nnhal models`, and `nnhal run` with the name of a model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal_tools.demo import digits
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.service.repository.model_files import put
from tests.tools.cli.command import assert_fails, invoke


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("names")
    put(folder / "models/digits/3/model.tflite", Path(digits.MODEL).read_bytes())
    put(folder / "models/digits/config.toml", f"labels = {[f'the digit {i}' for i in range(10)]}".encode())
    put(folder / "models/broken.tflite", b"no model")
    service = start_service(folder, "--models", str(folder / "models"), "--models-push")
    yield service.target
    stop_service(service)


def test_models_are_listed(target: str) -> None:
    result = invoke("models", "list", "--target", target)
    assert result.exit_code == 1
    assert "available  digits 3" in result.stdout or "ready      digits 3" in result.stdout
    assert "failed     broken 1: is not a .tflite file" in result.stdout
    rows = json.loads(invoke("models", "list", "--target", target, "--json").stdout)
    assert [(row["name"], row["version"]) for row in rows] == [("broken", 1), ("digits", 3)]


def test_models_are_loaded_and_unloaded(target: str) -> None:
    assert invoke("models", "unload", "digits", "--target", target).stdout == "unloaded digits\n"
    assert_fails(invoke("run", "digits", "--target", target), 1, "model 'digits' is unloaded")
    assert invoke("models", "load", "digits", "--target", target).stdout == "loaded digits\n"
    assert_fails(invoke("models", "load", "other", "--target", target), 1, "'other' is not found")


def test_model_runs_by_name(target: str) -> None:
    result = invoke("run", "digits", "--target", target)
    assert result.exit_code == 0, result.output
    assert "the digit" in result.stdout and "inputs: random" in result.stdout


def test_service_without_models(tmp_path: Path) -> None:
    result = invoke("models", "list")
    assert (result.exit_code, result.stdout) == (0, "the service has no models by name\n")


def test_bench_by_name(target: str) -> None:
    result = invoke("bench", "digits", "--target", target, "--duration", "0.1", "--rounds", "1", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["results"]
    assert (row["subject"]["path"], row["errors"]) == ("same-machine", {})
    assert_fails(invoke("bench", "digits", "--target", target, "--engine"), 2, "--engine needs the file of the model")


def test_models_are_pushed_pulled_and_removed(target: str, tmp_path: Path) -> None:
    """The service runs in its sandbox."""
    config, file = tmp_path / "new.toml", tmp_path / "pulled.tflite"
    config.write_text(f"labels = {[f'the number {i}' for i in range(10)]}")
    options = ("--target", target)
    pushed = invoke("models", "push", "new", digits.MODEL, "--config", config, *options)
    assert pushed.output == "pushed new 1\n"
    assert "the number" in invoke("run", "new", *options).stdout
    pulled = invoke("models", "pull", "new", file, "--config", tmp_path / "pulled.toml", *options)
    assert pulled.output == "pulled new 1\n"
    assert file.read_bytes() == Path(digits.MODEL).read_bytes()
    assert (tmp_path / "pulled.toml").read_bytes() == config.read_bytes()
    assert invoke("models", "remove", "new", "--version", "1", *options).output == "removed new 1\n"
    assert_fails(invoke("models", "remove", "new", *options), 1, "model 'new' is not found")
    assert_fails(invoke("models", "push", "new", tmp_path / "absent", *options), 2, "absent")
