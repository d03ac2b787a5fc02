"""A service with mutual TLS in this process, whose files a test may replace."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.service.tls.authority import Authority

CA = Authority()
SERVER, CLIENT = CA.issue(), CA.issue("client@example.org")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run a service with mutual TLS, whose files are in a folder, and yield its address."""
    SERVER.write(folder)
    (folder / "ca.crt").write_bytes(CA.pem)
    settings = Settings(
        listen=("127.0.0.1:0",),
        backends=("CpuRef",),
        cache_dir=folder / "cache",
        state_dir=folder / "state",
        tls_cert=folder / "tls.crt",
        tls_key=folder / "tls.key",
        tls_client_ca=folder / "ca.crt",
    )
    with Server(settings) as server:
        yield server.addresses[0]
