"""Processes that fork after they have connected."""

import subprocess
import sys

import pytest

from tests.end_to_end.support.service_process import Service


@pytest.mark.parametrize("transport", ["auto", "grpc"])
@pytest.mark.parametrize(
    "end", ["close", *(pytest.param(end, marks=pytest.mark.nightly) for end in ("collect", "connect"))]
)
def test_child_has_a_clear_error_and_the_parent_goes_on(service: Service, transport: str, end: str) -> None:
    assert_clean(service.target, transport, end)


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["close", "collect", "exit", "connect"])
def test_embedded_service_stays_with_the_parent(end: str) -> None:
    assert_clean("", "auto", end)


def assert_clean(address: str, transport: str, end: str) -> None:
    """Run the program, and check that the child had one error for all calls and the parent none."""
    command = [sys.executable, "-m", "tests.end_to_end.support.forking.forking_client", address, transport, end]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    child, parent = finished.stdout.splitlines()
    reason = "the device belongs to another process, which has forked this one; connect in each process"
    assert child == repr({f"DEVICE_UNAVAILABLE: {reason}"})
    assert parent == "the parent is done"
