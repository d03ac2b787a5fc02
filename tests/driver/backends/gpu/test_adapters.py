"""GPUs of the machine, and the choice of one."""

import pytest

from nnhal_driver.backends.gpu import adapters
from nnhal_driver.backends.gpu.adapters import Adapter, NoAdapterError, choose_adapter, find_adapters
from tests.driver.backends.gpu.software_gpu import NAME, require_software_gpu

CARD = Adapter("Some GeForce", "580.0.0", 8 << 30, is_software=False)
SOFTWARE = Adapter("SwiftShader Device", "5.0.0", 1 << 30, is_software=True)


def test_hardware_is_the_default() -> None:
    assert choose_adapter((SOFTWARE, CARD), "") is CARD


def test_name_chooses_an_adapter_also_in_software() -> None:
    assert choose_adapter((CARD, SOFTWARE), "swift") is SOFTWARE


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", r"no GPU but SwiftShader Device \(software\); name it with --backend-option GpuAcc.adapter=NAME"),
        ("Radeon", r"no GPU is named 'Radeon'; there are: SwiftShader Device \(software\)"),
    ],
)
def test_missing_adapter_is_explained(name: str, message: str) -> None:
    with pytest.raises(NoAdapterError, match=message):
        choose_adapter((SOFTWARE,), name)


def test_missing_driver_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    require_software_gpu()
    monkeypatch.setenv("VK_DRIVER_FILES", "/nonexistent.json")
    with pytest.raises(NoAdapterError, match="Vulkan finds no driver of a GPU"):
        find_adapters()


def test_missing_loader_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_LOADER", "libnone.so")
    with pytest.raises(NoAdapterError, match="install Debian's libvulkan1"):
        list(adapters.list_adapters())


def test_driver_that_aborts_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_COMMAND", ("-c", "import os, sys; print('oops', file=sys.stderr); os.abort()"))
    with pytest.raises(NoAdapterError, match="the drivers of Vulkan failed: oops"):
        find_adapters()


def test_driver_that_hangs_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_COMMAND", ("-c", "import signal; signal.pause()"))
    monkeypatch.setattr(adapters, "_TIMEOUT_S", 0.5)
    with pytest.raises(NoAdapterError, match="no answer"):
        find_adapters()


def test_gpu_of_the_tests_is_found() -> None:
    require_software_gpu()
    (adapter,) = find_adapters()
    assert NAME in adapter.name and adapter.memory_bytes > 0
    assert adapter.is_software == (NAME == "SwiftShader")
