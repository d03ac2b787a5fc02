"""The library, built once, and a service."""

import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhal_delegate.build import build_delegate
from tests.end_to_end.support.service_process import Service, start_service, stop_service


@pytest.fixture(scope="session")
def delegate_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the library."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("the library is built on Linux with a C compiler")
    return build_delegate(tmp_path_factory.mktemp("delegate"), flags=("-Werror",))


@pytest.fixture(scope="session")
def delegate_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service with all operations."""
    running = start_service(tmp_path_factory.mktemp("delegate-service"), "--backends", "CpuAcc,CpuRef")
    yield running
    stop_service(running)


@pytest.fixture
def delegate_log() -> Iterator[list[str]]:
    """Yield the messages of delegates in this process."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("nnhal.delegate")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
