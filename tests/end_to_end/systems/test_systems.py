"""Clients on Windows and macOS, imitated: they work with a service of Linux over TCP, and start none themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

from nnhal_tools.demo.digits import MODEL
from tests.end_to_end.support.service_process import Service

ROOT = Path(__file__).parents[3]
NAMES = {"darwin": "macOS", "win32": "Windows"}
NEEDS_LINUX = "needs Linux, and this is {}"
START_ELSEWHERE = (
    "nnhal: a service " + NEEDS_LINUX + "; run `nnhal serve` on a Linux machine, and connect to its address\n"
)


def run(system: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module on a system."""
    command = [sys.executable, "-m", "tests.end_to_end.systems.imitation", system, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("system", NAMES)
def test_both_clients_use_a_service_over_tcp(service: Service, system: str) -> None:
    ended = run(system, "tests.end_to_end.systems.portable_client", service.target)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


def test_commands_use_a_service_over_tcp(service: Service) -> None:
    ended = run("win32", "nnhal_tools", "explain", str(MODEL), "--run", "--target", service.target)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "CpuAcc" in ended.stdout


@pytest.mark.parametrize(
    ("system", "arguments", "expected"),
    [
        ("darwin", "info", START_ELSEWHERE),
        ("win32", "info", START_ELSEWHERE),
        ("darwin", "serve", "nnhal: `nnhal serve` " + NEEDS_LINUX + "\n"),
        ("win32", "serve --workers 2", "nnhal: `nnhal serve` " + NEEDS_LINUX + "\n"),
        ("win32", "cache list", "nnhal: this command " + NEEDS_LINUX + "\n"),
        ("win32", "quarantine list", "nnhal: this command " + NEEDS_LINUX + "\n"),
    ],
)
def test_commands_that_need_a_service_here_say_that_it_needs_linux(system: str, arguments: str, expected: str) -> None:
    ended = run(system, "nnhal_tools", *arguments.split())
    assert (ended.returncode, ended.stderr, ended.stdout) == (2, expected.format(NAMES[system]), "")


def test_windows_has_no_unix_sockets() -> None:
    ended = run("win32", "nnhal_tools", "info", "--target", "unix:/tmp/socket")
    assert ended.returncode == 2
    assert "invalid address 'unix:/tmp/socket': Windows has no Unix sockets; expected HOST:PORT" in ended.stderr


@pytest.mark.parametrize("module", ["nnhal.client.shm.data_socket", "nnhal_service.server"])
def test_imitation_hides_linux_from_modules_that_need_it(module: str) -> None:
    """Otherwise, the other tests would show nothing."""
    assert "Error: " in run("darwin", module).stderr.splitlines()[-1]
