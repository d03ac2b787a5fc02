"""The library, built once, and a service whose device it uses."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal_ndk import devices
from nnhal_ndk.build import build
from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from tests.end_to_end.support.service_process import Service, start_service, stop_service


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the library."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("the library is built on Linux with a C compiler")
    return build(tmp_path_factory.mktemp("ndk"), flags=("-Werror",))


@pytest.fixture(scope="session")
def ndk_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service with one device."""
    running = start_service(tmp_path_factory.mktemp("ndk-service"), "--backends", "CpuRef,CpuAcc")
    yield running
    stop_service(running)


@pytest.fixture(scope="session")
def library(library_path: Path, ndk_service: Service) -> Iterator[NdkLibrary]:
    """Yield the library in this process. Its device 0 is that of the service."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNHAL_TARGET", ndk_service.target)
        loaded = NdkLibrary(library_path)
        assert loaded.number("getDeviceCount") == (0, 2)
        yield loaded
        devices.close_devices()
