"""The C++ client of examples/cpp against a running service. CI has no gRPC for C++, so it skips these tests too."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.support.service_process import Service, start_service, stop_service

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp"
TOOLS = ("make", "g++", "pkg-config", "protoc", "grpc_cpp_plugin")

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the client, unless a tool or a library is missing."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if subprocess.run(["pkg-config", "--exists", "grpc++", "protobuf"], check=False).returncode != 0:
        pytest.skip("not installed: the libraries grpc++ and protobuf")
    build = tmp_path_factory.mktemp("cpp")
    subprocess.run(["make", "-s", "-C", str(EXAMPLE), f"BUILD={build}", "CXXFLAGS=-O0"], check=True, timeout=600)
    return build / "client"


@pytest.fixture(scope="module")
def service(client: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service, once the client is built."""
    running = start_service(tmp_path_factory.mktemp("service"))
    yield running
    stop_service(running)


def run_client(client: Path, target: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([client, target], capture_output=True, text=True, timeout=60, check=False)


def test_client_prints_the_output_of_its_readme(client: Path, service: Service) -> None:
    result = run_client(client, service.target)
    assert (result.returncode, result.stderr) == (0, "")
    _, _, expected = (EXAMPLE / "README.md").read_text().partition("shows the details of an error:\n\n")
    assert result.stdout.splitlines() == [line.removeprefix("    ") for line in expected.splitlines()]


def test_client_reports_a_service_that_does_not_run(client: Path) -> None:
    result = run_client(client, "127.0.0.1:1")
    assert result.returncode == 1
    assert "Connection refused" in result.stderr and result.stderr.count("\n") == 1
