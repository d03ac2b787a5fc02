"""One service with two workers for all tests of the folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import Service, start_service, stop_service


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("admin")


@pytest.fixture(scope="package")
def service(folder: Path) -> Iterator[Service]:
    options = (
        "--workers",
        "2",
        "--stop-grace-s",
        "1",
        "--backend-option",
        "CpuAcc.threads=1",
        "--http-listen",
        "127.0.0.1:0",
    )
    service = start_service(folder, *options, NNHAL_STATE_DIR=str(folder / "state"))
    yield service
    assert stop_service(service) == 0
    assert not list((folder / "state").glob("*.sock"))
