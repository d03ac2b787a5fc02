"""A service with plug-ins: usable backends run, unusable ones are reported, and the service always starts."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import nnhal
from nnhal.types import Model, Operand, OperandType, OperationType, SpanKind
from nnhal_tools.cli import app
from tests.driver.backends.native.building import HEADERS, build, example, newer
from tests.driver.backends.plugins import plugin_files
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.shared import shared

FACTORY = "return Doubler()"
RELU_MODEL_SHAPE = (300, 400)


def _relu_model() -> Model:
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, RELU_MODEL_SHAPE)
    b.output(b.add(OperationType.RELU, x, output=Operand(OperandType.TENSOR_FLOAT32, RELU_MODEL_SHAPE)))
    return b.build()


def _backend_states(service: Service) -> list[tuple[str, str]]:
    with nnhal.connect(service.target) as device:
        return [(backend.id, backend.state.name) for backend in device.backends()]


def test_dynamic_backends_come_first_and_run(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    plugin_files.write(folder, "A_Doubler_backend.py")
    plugin_files.write(folder, "A_Crash_backend.py", {FACTORY: "import os; os.abort()"})
    example(folder)
    service = start_service(tmp_path, "--dynamic-backends-path", f"{folder}:/no/such/folder")
    try:
        assert [state for state in _backend_states(service) if state[0] != "CpuAcc"] == [
            ("Doubler", "READY"),
            ("Simple", "READY"),
            ("CpuRef", "READY"),
            ("", "FAILED"),
        ]
        with nnhal.connect(service.target) as device:
            value = np.ones(RELU_MODEL_SHAPE, np.float32)
            prepared = device.prepare(_relu_model()).result()
            assert prepared.execute([value])[0].max() == 2  # this plug-in doubles
            assert "com.example.simple" in [extension.name for extension in device.extensions]
            assert "Doubler/7" in device.version
        assert service.logged("/no/such/folder cannot be used")
        assert service.logged("A_Crash_backend.py failed: it crashed the process with SIGABRT")
    finally:
        assert stop_service(service) == 0


def test_only_named_backends_are_used(tmp_path: Path) -> None:
    plugin_files.write(tmp_path, "A_Doubler_backend.py")
    plugin_files.write(tmp_path, "A_Other_backend.py", {'"Doubler"': '"Other"'})
    service = start_service(tmp_path, "--backends", "CpuRef,Other", NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        assert _backend_states(service) == [("CpuRef", "READY"), ("Other", "READY"), ("Doubler", "SKIPPED")]
    finally:
        stop_service(service)


@pytest.mark.slow
def test_default_folder_of_the_user(tmp_path: Path) -> None:
    """Without a path, the folder in $XDG_DATA_HOME is searched. A path replaces it."""
    folder, other = tmp_path / "nnhal" / "backends", tmp_path / "other"
    for path, name in ((folder, '"Default"'), (other, '"Other"')):
        path.mkdir(parents=True)
        plugin_files.write(path, "A_Doubler_backend.py", {'"Doubler"': name})
    for options, found in (((), ["Default"]), (("--dynamic-backends-path", str(other)), ["Other"])):
        service = start_service(tmp_path, *options, XDG_DATA_HOME=str(tmp_path))
        try:
            states = _backend_states(service)
            assert [id_ for id_, _ in states if id_ not in ("CpuAcc", "CpuRef")] == found
        finally:
            stop_service(service)


def test_each_device_creates_its_own_backends(tmp_path: Path) -> None:
    count = {FACTORY: "open(__file__ + '.made', 'a').write('x'); " + FACTORY}
    path = plugin_files.write(tmp_path, "A_Doubler_backend.py", count)
    options = ("--backends", "Doubler", "--device", "one", "--device", "two")
    service = start_service(tmp_path, *options, NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        for name in ("one", "two"):
            with nnhal.connect(service.target, device=name) as device:
                value = np.ones(RELU_MODEL_SHAPE, np.float32)
                assert device.prepare(_relu_model()).result().execute([value])[0].max() == 2
        assert path.with_name(path.name + ".made").read_text() == "xxx"  # one for the trial, and one for each device
    finally:
        stop_service(service)


def test_native_plugin_that_crashes_on_load(tmp_path: Path) -> None:
    source_file = Path(__file__).parents[2] / "driver" / "backends" / "native" / "broken.c"
    build(source_file, tmp_path / "A_Broken_backend.so", HEADERS, "-DCRASH_ON_LOAD")
    service = start_service(tmp_path, "--backends", "Broken,CpuRef", NNHAL_DYNAMIC_BACKENDS_PATH=str(tmp_path))
    try:
        assert _backend_states(service) == [("CpuRef", "READY"), ("Broken", "FAILED"), ("", "FAILED")]
        shown = CliRunner().invoke(app, ["backends", "--target", service.target])
        assert shown.exit_code == 1
        assert "it crashed the process with SIGSEGV while loading it" in shown.stdout
        rows = json.loads(CliRunner().invoke(app, ["backends", "--json", "--target", service.target]).stdout)
        assert [row["state"] for row in rows] == ["ready", "failed", "failed"]
        assert rows[2]["origin"] == str(tmp_path / "A_Broken_backend.so")
    finally:
        stop_service(service)


EXAMPLES = Path(__file__).parents[3] / "examples" / "backends"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--suite", "basic,generated", "--sample", "1"), marks=pytest.mark.slow, id="sample"),
        pytest.param((), marks=pytest.mark.nightly, id="all suites"),
    ],
)
def test_cpu_ref_as_a_dynamic_backend(options: tuple[str, ...]) -> None:
    """`make nightly` runs all vectors on it, too."""
    plugin = ("--backends-path", str(EXAMPLES / "reference"), "--backend", "DynamicCpuRef")
    command = ["conformance", "--vectors", str(shared("vectors")), *plugin, "--select", "*/relu*"]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == 0, result.output
    assert "CpuRef/" not in CliRunner().invoke(app, [*command, "--mode", "support"]).stdout.replace(
        "DynamicCpuRef/", ""
    )


def test_conformance_fails_if_the_plugin_raises(tmp_path: Path) -> None:
    """Another backend computes everything, and all results pass."""
    plugin_files.write(tmp_path, "A_B_backend.py", {"return Support(": "raise IndexError('no'); return Support("})
    plugin = ("--backends-path", str(tmp_path), "--backend", "Doubler,CpuRef")
    selected = ("--suite", "generated", "--select", "add*", "--sample", "1", "--path", "SYNC")
    result = CliRunner().invoke(app, ["conformance", *plugin, *selected])
    lines = result.stdout.splitlines()
    assert (result.exit_code, ", 0 failed," in lines[-1]) == (1, True), result.output
    text = " ".join(lines)
    assert "FAILED Doubler: asking it failed: backend Doubler failed in supports: IndexError: no (" in text
    assert "WARNING Doubler ran 0 of 1 operation: these results are those of other backends" in text


@pytest.mark.slow
def test_support_and_perf_modes() -> None:
    plugin = ("--backends-path", str(EXAMPLES / "reference"), "--backend", "DynamicCpuRef,CpuRef", "--select", "*add*")
    support = CliRunner().invoke(app, ["conformance", "--mode", "support", *plugin])
    assert support.exit_code == 0, support.output
    columns, *rows = support.stdout[support.stdout.index("operation") :].splitlines()
    assert "DynamicCpuRef" in columns and " CpuRef" not in columns and any("ADD" in row for row in rows)
    perf = CliRunner().invoke(app, ["conformance", "--mode", "perf", *plugin])
    assert perf.exit_code == 0 and "DynamicCpuRef" in perf.stdout and "median" in perf.stdout
    rejected = CliRunner().invoke(app, ["conformance", "--target", "localhost:1", "--backend", "CpuRef"])
    assert rejected.exit_code == 2 and "embedded service" in rejected.stderr


def test_python_example_substitutes_operations(tmp_path: Path) -> None:
    shape = (1, 200, 200, 3)
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, shape)
    image = Operand(OperandType.TENSOR_FLOAT32, shape)
    total = b.add(OperationType.ADD, b.add(OperationType.SUB, x, x, 0, output=image), x, 0, output=image)
    b.output(b.add(OperationType.RELU, total, output=image))
    service = start_service(tmp_path, NNHAL_DYNAMIC_BACKENDS_PATH=str(EXAMPLES))
    try:
        with nnhal.connect(service.target) as device:
            prepared = device.prepare(b.build()).result()
            assert [partition.backend for partition in prepared.placement.partitions] == ["ExampleArena"]
            value = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            profile = prepared.profile([value])
            np.testing.assert_array_equal(profile.outputs[0], value.clip(0))
            names = [span.name for span in profile.spans if span.kind == SpanKind.OPERATION]
            assert names == ["SUB", "ADD"], "RELU is part of the ADD before it"
    finally:
        assert stop_service(service) == 0


@pytest.mark.parametrize("words", ["", "capable"])
def test_native_backend_reads_shared_memory_of_the_client(tmp_path: Path, words: str) -> None:
    """A backend that copies its inputs gets pointers into the client's memfd, others get pointers into a copy."""
    newer(tmp_path)
    events = tmp_path / "events"
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, (1000,))
    b.output(b.add(OperationType.NEG, x, output=Operand(OperandType.TENSOR_FLOAT32, (1000,))))
    settings = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path), "NEWER": words, "NEWER_EVENTS": str(events)}
    service = start_service(tmp_path, "--backends", "Newer", **settings)
    try:
        with nnhal.connect(service.target) as device:
            value = np.arange(1000, dtype=np.float32)
            np.testing.assert_array_equal(device.prepare(b.build()).result().execute([value])[0], -value)
    finally:
        assert stop_service(service) == 0
    assert ("lies in /memfd:nnhal" in events.read_text().splitlines()) == bool(words)


@pytest.mark.slow
def test_commands_for_backend_authors(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(app, ["new-backend", "Acme", "Npu", "--folder", str(tmp_path / "npu")]).exit_code == 0
    assert run(app, ["backends", "doctor", str(tmp_path / "npu" / "Acme_Npu_backend.py")]).exit_code == 0
    assert run(app, ["backends", "doctor", str(tmp_path / "npu" / "test_npu.py")]).exit_code == 1
    absent = run(app, ["backends", "doctor", str(tmp_path / "absent")])
    assert absent.exit_code == 2 and "absent is not a file" in absent.stderr
    misnamed = run(app, ["new-backend", "Ac_me", "Npu", "--folder", str(tmp_path / "other")])
    assert misnamed.exit_code == 2 and "must be letters and digits" in misnamed.stderr


@pytest.mark.parametrize("path", ["", ":", "relative"])
def test_paths_without_a_folder_are_no_error(path: str, tmp_path: Path) -> None:
    service = start_service(tmp_path, "--backends", "CpuRef", NNHAL_DYNAMIC_BACKENDS_PATH=path)
    try:
        assert _backend_states(service) == [("CpuRef", "READY")]
    finally:
        stop_service(service)
