"""Descriptions of devices and of the runtime."""

import ctypes
from pathlib import Path

import pytest

from nnhal.types import DeviceType
from nnhal_ndk.device_list import REFERENCE_NAME, configured_sources
from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from tests.nnhal_ndk.programs import device, expect

LEVEL_8 = 1000008


def _text(library: NdkLibrary, name: str, index: int) -> bytes | None:
    text = ctypes.c_char_p()
    expect(getattr(library, name)(device(library, index), ctypes.byref(text)))
    return text.value


def test_the_runtime_describes_itself(library: NdkLibrary) -> None:
    assert library.getRuntimeFeatureLevel() == LEVEL_8
    assert library.getDefaultLoopTimeout() == 2 * 10**9
    assert library.getMaximumLoopTimeout() == 15 * 10**9


def test_a_device_describes_itself(library: NdkLibrary) -> None:
    assert library.number("getDeviceCount") == (0, 2)
    assert "CpuRef" in (_text(library, "Device_getVersion", 0) or b"").decode()
    assert _text(library, "Device_getName", 0)
    assert library.number("Device_getType", device(library)) == (0, DeviceType.CPU)
    assert library.number("Device_getFeatureLevel", device(library)) == (0, LEVEL_8)
    expect(library.Device_wait(device(library)))


def test_the_last_device_is_the_reference_implementation(library: NdkLibrary) -> None:
    assert _text(library, "Device_getName", 1) == REFERENCE_NAME.encode()
    assert library.number("Device_getType", device(library, 1)) == (0, DeviceType.CPU)
    assert library.number("Device_getFeatureLevel", device(library, 1)) == (0, LEVEL_8)


@pytest.mark.parametrize("error", [RuntimeError("no home folder"), PermissionError("unreadable")], ids=repr)
def test_a_program_without_a_home_folder_has_the_embedded_device(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> Path:
        raise error

    monkeypatch.setattr(Path, "home", fail)
    (source,) = configured_sources({})
    assert (source.target, source.name) == (None, "nnhal")
