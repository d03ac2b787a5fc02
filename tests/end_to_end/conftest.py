"""Fixture with a running service that tests share."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.support.service_process import Service, start_service, stop_service


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service that all tests of a worker share."""
    running = start_service(tmp_path_factory.mktemp("service"))
    yield running
    stop_service(running)
