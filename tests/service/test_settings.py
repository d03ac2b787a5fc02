"""Settings: the text forms of lists, limits and log levels."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from nnhal.types import DeviceType
from nnhal_service.serving.backends import device_settings
from nnhal_service.settings import Settings, split_device


@pytest.mark.parametrize(
    ("text", "backends"),
    [
        ("CpuRef", ("CpuRef",)),
        ("CpuAcc, CpuRef", ("CpuAcc", "CpuRef")),
        ('["CpuAcc", "a,b"]', ("CpuAcc", "a,b")),
        ("", ("",)),
    ],
)
def test_list_has_commas_or_is_json(text: str, backends: tuple[str, ...]) -> None:
    assert Settings.model_validate({"backends": text}).backends == backends


def test_elements_of_lists_are_converted() -> None:
    assert Settings.model_validate({"data_users": "10,20"}).data_users == (10, 20)
    assert Settings.model_validate({"data_users": "[10]"}).data_users == (10,)


def test_models_are_in_a_folder_or_at_a_url(tmp_path: Path) -> None:
    assert Settings().models_folder is None and Settings().models_url is None
    for text in (str(tmp_path), f"file://{tmp_path}"):
        settings = Settings(models=text, models_push=True)
        assert settings.models_folder == tmp_path and settings.models_url is None
    pytest.importorskip("fsspec", reason="the extra `share` is not installed")
    first, second = (Settings(models=f"memory://{name}", state_dir=tmp_path) for name in "ab")
    assert first.models_url == "memory://a"
    assert first.models_folder is not None and first.models_folder.parent == tmp_path
    assert first.models_folder != second.models_folder
    first.check_models()  # the folder is created later
    with pytest.raises(ValidationError, match="needs a folder of models; put models into memory://a"):
        Settings(models="memory://a", models_push=True)
    with pytest.raises(ValidationError, match="--models other://b: fsspec knows no store 'other'"):
        Settings(models="other://b")


@pytest.mark.parametrize("limits", ["sessions=8,reads = 2", '{"sessions": 8, "reads": 2}', ["sessions=8", "reads=2"]])
def test_limits_are_pairs_or_json(limits: object) -> None:
    assert Settings.model_validate({"limits": limits}).limits == {"sessions": 8, "reads": 2}


def test_case_of_log_levels_is_ignored() -> None:
    assert Settings.model_validate({"log_level": "warning"}).log_level == "WARNING"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"backends": "[CpuRef]"}, "invalid JSON"),
        ({"limits": "sessions"}, "invalid limit 'sessions'; expected NAME=VALUE"),
        ({"limits": "sessions=-1"}, "invalid limit"),
        ({"log_level": "loud"}, "'loud'"),
        ({"sandbox": "maybe"}, "'on', 'network' or 'off'"),
        ({"sandbox_paths": "/dev/npu0,npu1"}, "invalid path 'npu1'; expected an absolute path"),
        ({"threads": 3}, "greater than or equal to 4"),
        ({"nothing": 1}, "not permitted"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Settings.model_validate(values)


DEVICES = ("fast=CpuAcc,CpuRef", "exact=CpuRef", "any")


@pytest.mark.parametrize(
    "devices", ["fast=CpuAcc,CpuRef; exact=CpuRef;any", '["fast=CpuAcc,CpuRef", "exact=CpuRef", "any"]', list(DEVICES)]
)
def test_devices_may_have_backends(devices: object) -> None:
    settings = Settings.model_validate({"devices": devices})
    assert settings.devices == DEVICES
    assert [split_device(text) for text in DEVICES] == [
        ("fast", ("CpuAcc", "CpuRef")),
        ("exact", ("CpuRef",)),
        ("any", None),
    ]
    assert Settings.model_validate({"devices": "a,b"}).devices == ("a", "b")


@pytest.mark.parametrize(
    "options",
    [
        ["Npu.threads=4", "Npu.fast=true", "b/Npu.path=x=y/z.w"],
        "Npu.threads=4,Npu.fast=true,b/Npu.path=x=y/z.w",
        '{"Npu": {"threads": 4, "fast": true}, "b/Npu": {"path": "x=y/z.w"}}',
        {"Npu": {"threads": 4, "fast": True}, "b/Npu.path": "x=y/z.w"},
    ],
)
def test_options_of_backends(options: object) -> None:
    settings = Settings.model_validate({"devices": "a,b", "backend_options": options})
    assert settings.backend_options == {"Npu": {"threads": "4", "fast": "true"}, "b/Npu": {"path": "x=y/z.w"}}
    assert [device.options for device in device_settings(settings)] == [
        {"Npu": {"threads": "4", "fast": "true"}},
        {"Npu": {"threads": "4", "fast": "true", "path": "x=y/z.w"}},
    ]


@pytest.mark.parametrize("types", [["a=gpu"], "a=GPU", '{"a": "GPU"}', {"a": "Gpu"}])
def test_types_of_devices(types: object) -> None:
    settings = Settings.model_validate({"devices": "a,b", "device_types": types})
    assert [device.type for device in device_settings(settings)] == [DeviceType.GPU, None]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"devices": ["a=CpuRef", "a"]}, "'a' is given twice"),
        ({"devices": ["=CpuRef"]}, "the name of a device is empty"),
        ({"device_types": ["GPU"]}, "invalid device type 'GPU'; expected NAME=TYPE"),
        ({"device_types": ["nnhal=TPU"]}, "invalid type 'TPU' of nnhal; expected OTHER, CPU, GPU, ACCELERATOR"),
        ({"device_types": ["b=GPU"]}, "there is no device 'b'; there are nnhal"),
        ({"backend_options": ["Npu=4"]}, "invalid option 'Npu'; expected ID.KEY=VALUE"),
        ({"backend_options": ["Npu.threads"]}, "invalid option 'Npu.threads'; expected ID.KEY=VALUE"),
        ({"backend_options": ["b/Npu.threads=4"]}, "there is no device 'b'; there are nnhal"),
        ({"backend_options": {"Npu": {"cores": [1]}}}, "valid string"),
    ],
)
def test_invalid_devices_and_options_are_rejected(values: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(text)):
        Settings.model_validate(values)
