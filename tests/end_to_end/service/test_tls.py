"""TLS of `nnhal serve` with two workers in their sandbox: redirects, replaced files, reload and the command line."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import nnhal
from nnhal.errors import DeadObjectError, HalError
from tests.concurrency import wait_until
from tests.end_to_end.support.models import ADD
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.service.tls.authority import Authority, Pair

pytestmark = pytest.mark.slow
ONES = np.ones(4, np.float32)
CA = Authority()
CLIENT = CA.issue("client@example.org")


class Mount:
    """Folder with a secret, as Kubernetes mounts it: the files are links, and a link is swapped to replace them all."""

    def __init__(self, folder: Path, pair: Pair, ca: bytes) -> None:
        self.folder = folder
        self._versions = 0
        folder.mkdir()
        self.replace(pair, ca)
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(f"..data/{name}")

    def replace(self, pair: Pair, ca: bytes) -> None:
        """Replace all files at once."""
        self._versions += 1
        version = self.folder / f"..{self._versions}"
        version.mkdir()
        pair.write(version)
        (version / "ca.crt").write_bytes(ca)
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    """Return the files of the service."""
    return Mount(tmp_path / "tls", CA.issue(), CA.pem)


@pytest.fixture
def service(tmp_path: Path, mount: Mount) -> Iterator[Service]:
    """Yield a service with mutual TLS."""
    files = ("--tls-cert", mount.folder / "tls.crt", "--tls-key", mount.folder / "tls.key")
    options = (*map(str, files), "--tls-client-ca", str(mount.folder / "ca.crt"), "--workers", "2")
    options = (*options, "--no-worker-per-identity")
    running = start_service(tmp_path, *options, NNHAL_SANDBOX_PATHS="[]", NNHAL_BACKENDS="CpuRef")
    yield running
    assert stop_service(running) == 0


def connected(target: str, pair: Pair = CLIENT, ca: bytes = CA.pem) -> nnhal.Device:
    return nnhal.connect(target, ca=ca, cert=pair.cert, key=pair.key)


def execute(device: nnhal.Device) -> None:
    with device.prepare(ADD).result() as prepared:
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], [2, 2, 2, 2])


def private_addresses(service: Service) -> list[str]:
    """Return the addresses to which the workers send clients."""
    lists = re.findall(r" serving addresses=(\S+)", service.log.read_text())
    return [address for addresses in lists for address in addresses.split(",") if address != service.target]


def test_redirects_rotation_and_reload(service: Service, mount: Mount, tmp_path: Path) -> None:
    assert len(private_addresses(service)) == 2
    with connected(service.target) as first, connected(service.target) as second:
        execute(first)
        for address in private_addresses(service):
            connected(address).close()
        assert second._connection.shm is not None
        new_ca = Authority()
        new_client = new_ca.issue("new@example.org")
        mount.replace(new_ca.issue(), new_ca.pem)
        with connected(service.target, new_client, new_ca.pem) as third:  # workers read it in their sandbox
            execute(third)
        with pytest.raises(HalError, match="is not signed by an authority that the client trusts"):
            connected(service.target)
        with pytest.raises(DeadObjectError, match="does not accept the certificate of the client"):
            connected(service.target, ca=new_ca.pem)
        execute(first)
        execute(second)
        assert wait_until(lambda: service.log.read_text().count("tls-reloaded") == 2, 60)
        assert "sandbox-file" not in service.log.read_text()
    service.process.send_signal(1)  # SIGHUP: nnhal reload
    assert wait_until(lambda: service.logged(" reloaded\n"), 60)
    with connected(service.target, new_client, new_ca.pem) as device:
        execute(device)
    check_command_line(service.target, new_client, new_ca.pem, tmp_path)
    check_reflection(service.target, new_client, new_ca.pem)


def check_command_line(target: str, pair: Pair, ca: bytes, folder: Path) -> None:
    (folder / "client.pem").write_bytes(pair.cert + pair.key)
    (folder / "ca.pem").write_bytes(ca)
    command = [sys.executable, "-m", "nnhal_tools.cli", "info", "--target", f"grpcs://{target}"]
    options = ["--tls-ca", str(folder / "ca.pem"), "--client-cert", str(folder / "client.pem")]
    assert "nnhal/" in subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout
    failed = subprocess.run([*command, *options[:2]], check=False, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "it probably requires a certificate of the client" in failed.stderr


def check_reflection(target: str, pair: Pair, ca: bytes) -> None:
    with grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, pair.key, pair.cert)) as channel:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (response,) = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))
        assert "nnhal.v1.Session" in {each.name for each in response.list_services_response.service}


def test_unusable_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nnhal: cannot read /none: no such file or directory"):
        start_service(tmp_path, "--tls-cert", "/none", "--tls-key", "/none")
