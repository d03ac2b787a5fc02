"""Fixtures for the commands."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from nnhal.embedded import EmbeddedService


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """Yield the address of a service in a process of its own."""
    with closing(EmbeddedService()) as service:
        yield service.target


@pytest.fixture(autouse=True)
def _no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove COLUMNS, which pytest-xdist sets for its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _patient_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands wait for a service on a busy machine."""
    for module in ("backends", "conformance", "demo", "explain", "info", "model", "models", "recording.devices", "run"):
        monkeypatch.setattr(f"nnhal_tools.cli.{module}.CONNECT_S", 60)
