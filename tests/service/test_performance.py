"""What a service says of its speed: the same for each of its devices, and after every restart."""

from pathlib import Path

import pytest

import nnhal
from nnhal.types import Capabilities
from service.server import Server
from service.settings import Settings, default_state


def capabilities(folder: Path, *devices: str) -> list[Capabilities]:
    """Of the devices of a service that runs for as long as this takes."""
    settings = Settings(listen=("127.0.0.1:0",), devices=devices, state_dir=folder)
    with Server(settings) as server:
        found = []
        for name in devices:
            with nnhal.connect(server.addresses[0], device=name) as device:
                found.append(device.capabilities)
    return found


def test_figures_outlast_the_service(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    one, other = capabilities(tmp_path, "one", "other")
    assert one == other
    assert capabilities(tmp_path, "third") == [one]
    assert len({entry.info.exec_time for entry in one.operand_performance}) > 2, "they are measured"


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert default_state() == Path("/x/nnhal")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the specification says: ignore it
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_state() == Path("/home/somebody/.local/state/nnhal")
