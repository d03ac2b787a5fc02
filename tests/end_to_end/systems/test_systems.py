"""Clients on Windows and macOS, imitated: they work with a service of Linux over TCP, and start none themselves."""

import os
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


TESTS = ("client/core", "client/test_connection.py", "test_address.py", "test_wire.py")
"""Tests of the client that CI runs on another system, in tests/nnhal."""


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
        ("win32", "info", START_ELSEWHERE),
        ("darwin", "serve", "nnhal: `nnhal serve` " + NEEDS_LINUX + "\n"),
        ("win32", "serve --workers 2", "nnhal: `nnhal serve` " + NEEDS_LINUX + "\n"),
        ("win32", "cache list", "nnhal: this command " + NEEDS_LINUX + "\n"),
    ],
)
def test_commands_that_need_a_service_here_say_that_it_needs_linux(system: str, arguments: str, expected: str) -> None:
    ended = run(system, "nnhal_tools", *arguments.split())
    assert (ended.returncode, ended.stderr, ended.stdout) == (2, expected.format(NAMES[system]), "")


def test_windows_has_no_unix_sockets() -> None:
    ended = run("win32", "nnhal_tools", "info", "--target", "unix:/tmp/socket")
    assert ended.returncode == 2
    assert "invalid address 'unix:/tmp/socket': Windows has no Unix sockets; expected HOST:PORT" in ended.stderr


def test_imitation_hides_linux_from_modules_that_need_it() -> None:
    """Otherwise, the other tests would show nothing."""
    assert "has no attribute 'F_SEAL_SHRINK'" in run("darwin", "nnhal.client.shm.data_socket").stderr


def run_tests(system: str, *options: str) -> None:
    """Run tests of the client on a system."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.end_to_end.systems.imitation", *options]
    environment = {**os.environ, "NNHAL_IMITATE": system}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_sample_of_the_tests_of_the_client_passes() -> None:
    run_tests("win32", "-m", "not slow and not nightly", *(f"tests/nnhal/{name}" for name in TESTS))


@pytest.mark.nightly
@pytest.mark.parametrize("system", NAMES)
def test_tests_of_the_client_pass(system: str) -> None:
    run_tests(system, "tests/nnhal")
