"""A service whose devices differ: backends, types and options, from the command line, the environment and a file."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import nnhal
from nnhal.types import CacheState, DeviceType, Model, Operand, OperandType, OperationType
from nnhal_tools.cli import app
from tests.driver.backends.plugins import plugin_files
from tests.end_to_end.support.service_process import Service, start_service, stop_service

FACTORY = "def BackendFactory():\n    return Doubler()"
PLUGIN = {
    FACTORY: """def BackendFactory(options):
    backend = Doubler()
    backend.factor = options.integer("factor", 2, minimum=1)
    return backend""",
    "* 2": "* self.factor",
    'version = "7"': 'version = "7"\n    device_type = DeviceType.ACCELERATOR',
    "import API_VERSION,": "import API_VERSION, DeviceType,",
}
SHAPE = (300, 400)


def _relu() -> Model:
    builder = nnhal.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, SHAPE)
    builder.output(builder.add(OperationType.RELU, x, output=Operand(OperandType.TENSOR_FLOAT32, SHAPE)))
    return builder.build()


def _describe(service: Service, name: str) -> tuple[DeviceType, list[str], float]:
    """Return the type of a device, its ready backends, and what its RELU makes of 1."""
    with nnhal.connect(service.target, device=name) as device:
        backends = [backend.id for backend in device.backends() if backend.state.name == "READY"]
        outputs = device.prepare(_relu()).result().execute([np.ones(SHAPE, np.float32)])
        return device.type, backends, float(outputs[0].max())


def test_devices_have_backends_types_and_options(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    plugin_files.write(folder, "A_Doubler_backend.py", PLUGIN)
    options = ("--device", "exact=CpuRef", "--device", "npu=Doubler,CpuRef", "--device", "npu1=Doubler")
    types = ("--device-type", "exact=other")
    values = ("--backend-option", "Doubler.factor=3", "--backend-option", "npu1/Doubler.factor=5")
    service = start_service(tmp_path, *options, *types, *values, NNHAL_DYNAMIC_BACKENDS_PATH=str(folder))
    try:
        assert _describe(service, "") == (DeviceType.OTHER, ["CpuRef"], 1)
        assert _describe(service, "npu") == (DeviceType.ACCELERATOR, ["Doubler", "CpuRef"], 3)
        assert _describe(service, "npu1") == (DeviceType.ACCELERATOR, ["Doubler"], 5)
        shown = CliRunner().invoke(app, ["info", "--json", "--target", service.target, "--device", "npu1"])
        facts = json.loads(shown.stdout)
        assert (facts["device"], facts["type"], facts["backends"][0]["id"]) == ("npu1", "ACCELERATOR", "Doubler")
        versions = set()
        for name in ("npu", "npu1"):
            listed = CliRunner().invoke(app, ["backends", "--json", "--target", service.target, "--device", name])
            versions.add(json.loads(listed.stdout)[0]["version"])
        assert len(versions) == 2, "other options, other version"
    finally:
        assert stop_service(service) == 0


def test_cache_and_performance_of_devices_are_separate(tmp_path: Path) -> None:
    plugin_files.write(tmp_path, "A_Doubler_backend.py", PLUGIN)
    options = ("--device", "npu=Doubler", "--device", "npu1=Doubler", "--backend-option", "npu1/Doubler.factor=5")
    folders = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path), "NNHAL_STATE_DIR": str(tmp_path / "state")}
    service = start_service(tmp_path, *options, **folders)
    value, token = np.ones(SHAPE, np.float32), bytes(range(32))
    try:
        for name, result, is_hit in (("npu", 2, False), ("npu1", 5, False), ("npu", 2, True), ("npu1", 5, True)):
            with nnhal.connect(service.target, device=name) as device:
                prepared = device.prepare(_relu(), cache=True).result()
                assert prepared.execute([value])[0].max() == result
                assert (prepared.cache.state == CacheState.HIT) == is_hit
                assert device.prepare(_relu(), token=token).result().execute([value])[0].max() == result
        with nnhal.connect(service.target, device="npu") as npu, nnhal.connect(service.target, device="npu1") as npu1:
            assert npu.version != npu1.version
            assert npu.capabilities and npu1.capabilities
        files = list((tmp_path / "state").rglob("performance-*.json"))
        assert len(files) == 2
    finally:
        assert stop_service(service) == 0


@pytest.mark.slow
def test_environment_and_file(tmp_path: Path) -> None:
    plugin_files.write(tmp_path, "A_Doubler_backend.py", PLUGIN)
    config = tmp_path / "service.toml"
    tables = '[backend_options.Doubler]\nfactor = 4\n[device_types]\na = "gpu"\n'
    config.write_text(f'devices = ["a", "b=Doubler"]\n{tables}')
    path = {"NNHAL_DYNAMIC_BACKENDS_PATH": str(tmp_path)}
    from_file = start_service(tmp_path, "--config", str(config), **path)
    try:
        assert _describe(from_file, "a")[::2] == (DeviceType.GPU, 4)
        assert _describe(from_file, "b") == (DeviceType.ACCELERATOR, ["Doubler"], 4)
    finally:
        stop_service(from_file)
    variables = {"NNHAL_DEVICES": "a=Doubler,CpuRef;b=CpuRef", "NNHAL_BACKEND_OPTIONS": "Doubler.factor=6"}
    from_environment = start_service(tmp_path, NNHAL_DEVICE_TYPES="b=GPU", **variables, **path)
    try:
        assert _describe(from_environment, "a") == (DeviceType.ACCELERATOR, ["Doubler", "CpuRef"], 6)
        assert _describe(from_environment, "b") == (DeviceType.GPU, ["CpuRef"], 1)
    finally:
        stop_service(from_environment)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--device", "a=Npu"),
            "--device a: there is no backend 'Npu'; there are CpuAcc, CpuRef, Doubler, GpuAcc",
        ),
        (("--backend-option", "Npu.x=1"), "--backend-option Npu.x: there is no backend 'Npu'; there are CpuAcc"),
        (
            ("--backend-option", "Doubler.factor=0"),
            "--backend-option Doubler.factor: invalid value '0': expected a whole number from 1 on",
        ),
        (("--backend-option", "Doubler.tempo=1"), "--backend-option Doubler.tempo: the backend has no such option"),
        (("--backend-option", "CpuRef.x=1"), "--backend-option CpuRef.x: the backend has no such option"),
        (("--device-type", "b=GPU"), "--device-type: there is no device 'b'; there are nnhal"),
    ],
)
def test_invalid_settings_are_errors_at_the_start(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    plugin_files.write(tmp_path, "A_Doubler_backend.py", PLUGIN)
    with pytest.raises(RuntimeError, match=re.escape(message)):
        start_service(tmp_path, "--dynamic-backends-path", str(tmp_path), *options)
