"""GPU of the tests: SwiftShader, which Debian's package chromium contains, or the one that NNHAL_TEST_GPU names."""

import os
from functools import cache
from pathlib import Path

import pytest

from nnhal_driver.backends.gpu.adapters import NoAdapterError, find_adapters
from nnhal_driver.backends.gpu.backend import GpuAcc
from nnhal_driver.backends.options import BackendOptions
from nnhal_driver.backends.registry import create
from nnhal_driver.device import Device

_DRIVER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
NAME = os.environ.get("NNHAL_TEST_GPU", "SwiftShader")


def require_software_gpu() -> None:
    """Make the GPU of the tests the one of this process and of its children. Skip the test without it."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    if NAME == "SwiftShader":
        if not _DRIVER.exists():
            pytest.skip("there is no SwiftShader: apt-get install chromium libvulkan1")
        os.environ["VK_DRIVER_FILES"] = str(_DRIVER)  # read once, when the first device is created
    if problem := _problem():
        pytest.skip(problem)


@cache
def _problem() -> str:
    """Return why there is no GPU, or ""."""
    try:
        find_adapters()
    except NoAdapterError as error:
        return str(error)
    return ""


@cache
def gpu(placement: str = "always", precision: str = "normal") -> GpuAcc:
    """Return the backend on SwiftShader that tests share."""
    return GpuAcc(BackendOptions({"adapter": NAME, "placement": placement, "precision": precision}))


@cache
def gpu_device(*others: str, placement: str = "always") -> Device:
    """Return the device with GpuAcc and other backends that tests share."""
    return Device("gpu", [gpu(placement), *create(others)])
