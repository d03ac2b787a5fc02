"""The health check of the container image, against a health service."""

import shutil
import subprocess
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

CHECK = Path(__file__).resolve().parents[2] / "deploy" / "container" / "healthcheck"


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """Return the Unix socket of a health service: `up` serves, `down` does not, and the whole service serves."""
    if shutil.which("perl") is None:
        pytest.skip("perl is not installed")
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    servicer.set("up", health_pb2.HealthCheckResponse.SERVING)
    servicer.set("down", health_pb2.HealthCheckResponse.NOT_SERVING)
    server.add_insecure_port(f"unix:{tmp_path}/socket")
    server.start()
    yield tmp_path / "socket"
    server.stop(None).wait()


def status(*arguments: object) -> int:
    return subprocess.run([CHECK, *map(str, arguments)], capture_output=True, timeout=60, check=False).returncode


@pytest.mark.parametrize(("service", "expected"), [("", 0), ("up", 0), ("down", 1), ("unknown", 1)])
def test_status_is_the_health_of_the_service(socket: Path, service: str, expected: int) -> None:
    assert status(service, socket) == expected


def test_check_of_a_service_that_does_not_run_fails(socket: Path) -> None:
    assert status("", socket.with_name("missing")) != 0
