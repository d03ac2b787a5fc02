"""A service with plug-ins in its folders: what works is used, what does not is reported, and it always starts."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import nnhal
from nnhal.types import Model, Operand, OperandType, OperationType, SpanKind
from nnhal.v1 import device_pb2
from tests.driver.backends.dynamic import plugins
from tests.driver.backends.native.building import HEADERS, build, example, newer
from tests.end_to_end.conftest import Service, start, stop
from tests.shared import shared
from tools.cli import app

FACTORY = "return Doubler()"
RELU_MODEL_SHAPE = (300, 400)


def _relu() -> Model:
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, RELU_MODEL_SHAPE)
    b.output(b.add(OperationType.RELU, x, output=Operand(OperandType.TENSOR_FLOAT32, RELU_MODEL_SHAPE)))
    return b.build()


def _listed(service: Service) -> list[tuple[str, str]]:
    with nnhal.connect(service.target) as device:
        states = device_pb2.BackendState
        return [(one.id, states.Name(one.state).removeprefix("BACKEND_STATE_")) for one in device.backends()]


def test_found_backends_come_first_and_run(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    plugins.write(folder, "A_Doubler_backend.py")
    plugins.write(folder, "A_Crash_backend.py", {FACTORY: "import os; os.abort()"})
    example(folder)
    service = start(tmp_path, "--dynamic-backends-path", f"{folder}:/no/such/folder")
    try:
        assert [one for one in _listed(service) if one[0] != "CpuAcc"] == [
            ("Doubler", "READY"),
            ("Simple", "READY"),
            ("CpuRef", "READY"),
            ("", "FAILED"),
        ]
        with nnhal.connect(service.target) as device:
            value = np.ones(RELU_MODEL_SHAPE, np.float32)
            prepared = device.prepare(_relu()).result()
            assert prepared.execute([value])[0].max() == 2  # the plug-in doubles
            assert "com.example.simple" in [extension.name for extension in device.extensions]
            assert "Doubler/7" in device.version
        assert service.logged("/no/such/folder cannot be used")
        assert service.logged("A_Crash_backend.py failed: it crashed the process with SIGABRT")
    finally:
        assert stop(service) == 0


def test_only_what_is_named_is_used(tmp_path: Path) -> None:
    plugins.write(tmp_path, "A_Doubler_backend.py")
    plugins.write(tmp_path, "A_Other_backend.py", {'"Doubler"': '"Other"'})
    service = start(tmp_path, "--backends", "CpuRef,Other", NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        assert _listed(service) == [("CpuRef", "READY"), ("Other", "READY"), ("Doubler", "SKIPPED")]
    finally:
        stop(service)


def test_every_device_has_objects_of_its_own(tmp_path: Path) -> None:
    count = {FACTORY: "open(__file__ + '.made', 'a').write('x'); " + FACTORY}
    path = plugins.write(tmp_path, "A_Doubler_backend.py", count)
    options = ("--backends", "Doubler", "--device", "one", "--device", "two")
    service = start(tmp_path, *options, NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        for name in ("one", "two"):
            with nnhal.connect(service.target, device=name) as device:
                value = np.ones(RELU_MODEL_SHAPE, np.float32)
                assert device.prepare(_relu()).result().execute([value])[0].max() == 2
        assert path.with_name(path.name + ".made").read_text() == "xxx"  # the trial, and one for each device
    finally:
        stop(service)


def test_a_native_plugin_that_crashes_on_load(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "driver" / "backends" / "native" / "broken.c"
    build(source, tmp_path / "A_Broken_backend.so", HEADERS, "-DCRASH_ON_LOAD")
    service = start(tmp_path, "--backends", "Broken,CpuRef", NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        assert _listed(service) == [("CpuRef", "READY"), ("Broken", "FAILED"), ("", "FAILED")]
        shown = CliRunner().invoke(app, ["backends", "--target", service.target])
        assert shown.exit_code == 1
        assert "it crashed the process with SIGSEGV while loading it" in shown.stdout
        rows = json.loads(CliRunner().invoke(app, ["backends", "--json", "--target", service.target]).stdout)
        assert [row["state"] for row in rows] == ["ready", "failed", "failed"]
        assert rows[2]["origin"] == str(tmp_path / "A_Broken_backend.so")
    finally:
        stop(service)


BACKENDS = Path(__file__).parents[1] / "driver" / "backends"
EXAMPLES = Path(__file__).parents[2] / "driver" / "backends" / "example"


def test_cpu_ref_as_a_dynamic_backend() -> None:
    """`make nightly` runs all vectors on it; here a sample."""
    own = ("--backends-path", str(BACKENDS / "repackaged"), "--backend", "Repackaged")
    command = ["conformance", "--vectors", str(shared("vectors")), *own, "--select", "*/relu*"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "CpuRef" not in CliRunner().invoke(app, [*command, "--mode", "support"]).stdout


def test_modes_that_judge_nothing() -> None:
    own = ("--backends-path", str(BACKENDS / "repackaged"), "--backend", "Repackaged,CpuRef", "--select", "*add*")
    support = CliRunner().invoke(app, ["conformance", "--mode", "support", *own])
    assert support.exit_code == 0, support.output
    assert "Repackaged" in support.stdout and "ADD" in support.stdout and "CpuRef" not in support.stdout
    perf = CliRunner().invoke(app, ["conformance", "--mode", "perf", *own])
    assert perf.exit_code == 0 and "Repackaged" in perf.stdout and "median" in perf.stdout
    refused = CliRunner().invoke(app, ["conformance", "--target", "localhost:1", "--backend", "CpuRef"])
    assert refused.exit_code == 2 and "embedded service" in refused.stderr


def test_the_example_in_python_with_its_substitution(tmp_path: Path) -> None:
    shape = (1, 200, 200, 3)
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, shape)
    image = Operand(OperandType.TENSOR_FLOAT32, shape)
    total = b.add(OperationType.ADD, b.add(OperationType.SUB, x, x, 0, output=image), x, 0, output=image)
    b.output(b.add(OperationType.RELU, total, output=image))
    service = start(tmp_path, NNHAL_DYNAMIC_BACKENDS_PATH=str(EXAMPLES))
    try:
        with nnhal.connect(service.target) as device:
            prepared = device.prepare(b.build()).result()
            assert [one.backend for one in prepared.placement.partitions] == ["ExampleArena"]
            value = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            profile = prepared.profile([value])
            np.testing.assert_array_equal(profile.outputs[0], value.clip(0))
            names = [span.name for span in profile.spans if span.kind == SpanKind.OPERATION]
            assert names == ["SUB", "ADD"], "RELU is part of the ADD before it"
    finally:
        assert stop(service) == 0


@pytest.mark.parametrize("words", ["", "capable"])
def test_a_native_backend_gets_the_memory_that_a_client_shares(tmp_path: Path, words: str) -> None:
    """Pointers into the client's own memfd, where the backend says that it copies its inputs; else into a copy."""
    newer(tmp_path)
    events = tmp_path / "events"
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, (1000,))
    b.output(b.add(OperationType.NEG, x, output=Operand(OperandType.TENSOR_FLOAT32, (1000,))))
    own = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path), "NEWER": words, "NEWER_EVENTS": str(events)}
    service = start(tmp_path, "--backends", "Newer", **own)
    try:
        with nnhal.connect(service.target) as device:
            value = np.arange(1000, dtype=np.float32)
            np.testing.assert_array_equal(device.prepare(b.build()).result().execute([value])[0], -value)
    finally:
        assert stop(service) == 0
    assert ("lies in /memfd:nnhal" in events.read_text().splitlines()) == bool(words)


def test_the_commands_of_the_kit(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(app, ["new-backend", "Acme", "Npu", "--folder", str(tmp_path / "npu")]).exit_code == 0
    assert run(app, ["backends", "doctor", str(tmp_path / "npu" / "Acme_Npu_backend.py")]).exit_code == 0
    assert run(app, ["backends", "doctor", str(tmp_path / "npu" / "test_npu.py")]).exit_code == 1
    absent = run(app, ["backends", "doctor", str(tmp_path / "absent")])
    assert absent.exit_code == 2 and "absent is not a file" in absent.stderr
    misnamed = run(app, ["new-backend", "Ac_me", "Npu", "--folder", str(tmp_path / "other")])
    assert misnamed.exit_code == 2 and "must be letters and digits" in misnamed.stderr


@pytest.mark.parametrize("path", ["", ":", "relative"])
def test_no_folder_is_no_error(path: str, tmp_path: Path) -> None:
    service = start(tmp_path, "--backends", "CpuRef", NNHAL_DYNAMIC_BACKENDS_PATH=path)
    try:
        assert _listed(service) == [("CpuRef", "READY")]
    finally:
        stop(service)
