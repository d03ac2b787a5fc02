"""The Node.js client of examples/node against a running service."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.redirecting_server import redirecting
from tests.service.tls.tls_service import CLIENT, serving

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "node"
NODE = shutil.which("node")
PACKAGES = EXAMPLE / "node_modules"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service, unless Node.js or the packages are missing. With CI=true they must be present."""
    missing = "node is not installed" if NODE is None else "" if PACKAGES.is_dir() else f"run `npm ci` in {EXAMPLE}"
    if missing and os.environ.get("CI") != "true":
        pytest.skip(missing)
    assert not missing
    running = start_service(tmp_path_factory.mktemp("node"))
    yield running
    stop_service(running)


def run_client(target: str, **variables: str) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    command = [NODE, "client.mjs", target]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=EXAMPLE, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_client_prints_the_output_of_its_readme(service: Service) -> None:
    result = run_client(service.target)
    assert (result.returncode, result.stderr) == (0, "")
    _, _, expected = (EXAMPLE / "README.md").read_text().partition("shows the details of an error:\n\n")
    lines = [line.removeprefix("    ") for line in expected.splitlines()]
    version = re.compile(r"(?<=nnhal/)\S+")
    assert [version.sub("", line) for line in result.stdout.splitlines()] == [version.sub("", line) for line in lines]


def test_client_closes_its_session(service: Service) -> None:
    run_client(service.target)
    assert wait_until(lambda: service.logged("session-ended") and service.logged("'closed by the client'"))


def test_client_uses_mutual_tls(service: Service, tmp_path: Path) -> None:
    CLIENT.write(tmp_path)
    files = {"NNHAL_CLIENT_CERT": str(tmp_path / "tls.crt"), "NNHAL_CLIENT_KEY": str(tmp_path / "tls.key")}
    folder = tmp_path / "service"
    folder.mkdir()
    with serving(folder) as target:
        result = run_client(target.replace("127.0.0.1", "localhost"), NNHAL_TLS_CA=str(folder / "ca.crt"), **files)
    assert (result.returncode, result.stderr) == (0, "")
    assert "execute: 2,4,6,8" in result.stdout


def test_client_follows_a_redirect(service: Service) -> None:
    with redirecting(service.target) as first:
        result = run_client(first.target)
        assert (result.returncode, result.stderr) == (0, "")
        assert [request.accept_redirect for request in first.requests] == [True]


@pytest.mark.usefixtures("service")
def test_client_reports_a_service_that_does_not_run() -> None:
    result = run_client("127.0.0.1:1")
    assert result.returncode == 1
    assert "ECONNREFUSED" in result.stderr and result.stderr.count("\n") == 1
