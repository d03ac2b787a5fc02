"""Control socket of a worker: commands, errors, and requests that are not commands."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.control import ControlServer, ask_worker


def refuse(arguments: Mapping[str, Any]) -> bytes:
    raise AdminError("not today")


def fail(arguments: Mapping[str, Any]) -> bytes:
    raise RuntimeError("broken")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    deep = tmp_path / ("d" * 60) / ("e" * 60)  # longer than the name of a socket may be
    deep.mkdir(parents=True)
    commands = {"echo": lambda arguments: json.dumps(arguments).encode(), "refuse": refuse, "fail": fail}
    with closing(ControlServer(deep, commands)):
        yield deep


def test_command_gets_its_arguments(folder: Path) -> None:
    assert json.loads(ask_worker(folder, "echo", 60, worker=1)) == {"command": "echo", "worker": 1}


def test_large_results_arrive(folder: Path) -> None:
    assert len(ask_worker(folder, "echo", 60, text="x" * 60_000)) > 60_000


def test_refusals_are_errors_with_their_reason(folder: Path) -> None:
    with pytest.raises(AdminError, match="not today"):
        ask_worker(folder, "refuse", 60)


@pytest.mark.parametrize("command", ["fail", "unknown"])
def test_worker_goes_on_after_an_error(folder: Path, command: str) -> None:
    with pytest.raises(AdminError, match="the worker failed"):
        ask_worker(folder, command, 60)
    assert ask_worker(folder, "echo", 60)


def test_requests_that_are_too_long_end_the_connection(folder: Path) -> None:
    with pytest.raises(OSError):
        ask_worker(folder, "echo", 60, text="x" * 2**20)
    assert ask_worker(folder, "echo", 60)


def test_worker_that_has_ended(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ask_worker(tmp_path, "echo", 60)


def test_worker_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "control"))
        silent.listen()
        with pytest.raises(TimeoutError):
            ask_worker(tmp_path, "echo", 0.1)
