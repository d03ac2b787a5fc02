"""GPUs of the machine, and the choice of one."""

import os

import pytest

from nnhal_driver.backends.gpu import adapters
from nnhal_driver.backends.gpu.adapters import Adapter, NoAdapterError, claim_adapter, matching_adapters

CARD = Adapter("Some GeForce", "580.0.0", 8 << 30, is_software=False, id="0x10de:0x2330")
SOFTWARE = Adapter("SwiftShader Device", "5.0.0", 1 << 30, is_software=True, id="0x1ae0:0xc0de")


def test_hardware_is_the_default() -> None:
    assert matching_adapters((SOFTWARE, CARD), "") == (CARD,)


def test_name_chooses_an_adapter_also_in_software() -> None:
    assert matching_adapters((CARD, SOFTWARE), "swift") == (SOFTWARE,)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", r"no GPU but SwiftShader Device \(software\); name it with --backend-option GpuAcc.adapter=NAME"),
        ("Radeon", r"no GPU is named 'Radeon'; there are: SwiftShader Device \(software\)"),
    ],
)
def test_missing_adapter_is_explained(name: str, message: str) -> None:
    with pytest.raises(NoAdapterError, match=message):
        matching_adapters((SOFTWARE,), name)


def test_missing_loader_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_LOADER", "libnone.so")
    with pytest.raises(NoAdapterError, match="install Debian's libvulkan1"):
        list(adapters.list_adapters())


def test_process_uses_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_claimed", [])
    monkeypatch.setenv("VK_LOADER_DEVICE_SELECT", "")
    claim_adapter(CARD)
    claim_adapter(CARD)
    assert os.environ["VK_LOADER_DEVICE_SELECT"] == CARD.id
    with pytest.raises(NoAdapterError, match="a process uses one GPU, and this one uses Some GeForce; run another"):
        claim_adapter(SOFTWARE)
    assert os.environ["VK_LOADER_DEVICE_SELECT"] == CARD.id
