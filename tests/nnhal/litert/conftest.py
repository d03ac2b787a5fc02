"""Services of the drop-in interpreter: one for the tests of a module, which ends with them."""

from collections.abc import Iterator

import pytest

from nnhal.litert import devices


@pytest.fixture(scope="module", autouse=True)
def _close_devices() -> Iterator[None]:
    yield
    while devices._devices:
        devices._devices.popitem()[1].close()


@pytest.fixture(autouse=True)
def _embedded_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the embedded service unless a test names another one. Tests of the C library set this for their process."""
    monkeypatch.delenv("NNHAL_TARGET", raising=False)
