"""Performance figures: the same for each device of a service, and after a restart."""

from pathlib import Path

import pytest

import nnhal
from nnhal.types import Capabilities
from nnhal_service.server import Server
from nnhal_service.settings import Settings, default_state


def capabilities(folder: Path, *devices: str) -> list[Capabilities]:
    """Return the capabilities of the devices of a service."""
    settings = Settings(listen=("127.0.0.1:0",), devices=devices, state_dir=folder)
    with Server(settings) as server:
        result = []
        for name in devices:
            with nnhal.connect(server.addresses[0], device=name) as device:
                result.append(device.capabilities)
    return result


def test_figures_are_kept_after_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    first, second = capabilities(tmp_path, "first", "second")
    assert first == second
    assert capabilities(tmp_path, "third") == [first]
    assert len({entry.info.exec_time for entry in first.operand_performance}) > 2, "the figures are measured"


def test_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert default_state() == Path("/x/nnhal")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the XDG specification ignores relative paths
    monkeypatch.setenv("HOME", "/home/user")
    assert default_state() == Path("/home/user/.local/state/nnhal")
