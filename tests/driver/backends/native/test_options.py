"""Options and device type of native plug-ins."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from nnhal.types import DeviceType
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.identity import identity_of
from nnhal_driver.backends.options import OptionError
from nnhal_driver.backends.plugins.discovery import file_candidate
from nnhal_driver.backends.plugins.loading import LoadError, load
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from tests.driver.backends.native.building import build, newer
from tests.driver.one_operation import execute, float_tensor, model_of, prepare, tensor

RELU = model_of(Op.RELU, [float_tensor([1.0])], [tensor(T.TENSOR_FLOAT32, (1,))], constants=False)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(Path(__file__).with_name("options.c"), tmp_path_factory.mktemp("options") / "Test_Options_backend.so")


def _load(plugin: Path, options: Mapping[str, str]) -> Backend:
    return load(file_candidate(plugin), options={"Options": options}).backend


@pytest.mark.parametrize(
    ("options", "result"),
    [({}, 2), ({"factor": "7"}, 7), ({"memory": "limit"}, 2.25), ({"memory": "normal", "factor": "3"}, 3)],
)
def test_factory_reads_options(options: Mapping[str, str], result: float, plugin: Path) -> None:
    """The host itself reads the memory's mode, which applies to every model."""
    device = Device("test", [_load(plugin, options)])
    try:
        assert execute(prepare(RELU, device), [np.array([1], np.float32)])[1][0].tolist() == [result]
    finally:
        device.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": "0.5"}, r"^--backend-option Options\.factor: invalid value '0.5': expected 1 or more$"),
        ({"tempo": "1"}, r"Options\.tempo: the backend has no such option; it has device, factor, license, memory, se"),
        ({"memory": "small"}, r"Options\.memory: invalid value 'small': expected normal, limit$"),
    ],
)
def test_options_are_rejected_by_name(options: Mapping[str, str], message: str, plugin: Path) -> None:
    with pytest.raises(OptionError, match=message):
        _load(plugin, options)


def test_factory_gives_the_reason_of_its_failure(plugin: Path) -> None:
    with pytest.raises(LoadError, match="BackendFactoryWithOptions failed: the license has expired"):
        _load(plugin, {"license": "expired"})


def test_options_are_part_of_the_identity(plugin: Path) -> None:
    identity = identity_of(_load(plugin, {"factor": "3", "secret": "x"}))
    assert (identity.options, identity.other_options) == ((("factor", "3"),), (("secret", "x"),))


def test_plugin_without_the_entry_point_has_no_options(tmp_path: Path) -> None:
    candidate = file_candidate(newer(tmp_path))
    id_ = load(candidate).backend.id
    assert load(candidate, options={id_: {"memory": "limit"}}).backend.id == id_
    with pytest.raises(OptionError, match="the backend has no such option; it has memory"):
        load(candidate, options={id_: {"factor": "3"}})


def test_plugin_declares_its_type(plugin: Path, tmp_path: Path) -> None:
    assert _load(plugin, {}).device_type == DeviceType.ACCELERATOR
    assert _load(plugin, {"device": "3"}).device_type == DeviceType.GPU
    with pytest.raises(LoadError, match="the backend's device_type is 9; expected a DeviceType"):
        _load(plugin, {"device": "9"})
    assert load(file_candidate(newer(tmp_path))).backend.device_type == DeviceType.CPU
    device = Device("test", [_load(plugin, {})])
    assert device.get_type() == DeviceType.ACCELERATOR
    device.close()
    device = Device("test", [_load(plugin, {})], DeviceOptions(type=DeviceType.OTHER))
    assert device.get_type() == DeviceType.OTHER
    device.close()
