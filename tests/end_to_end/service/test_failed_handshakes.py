"""TLS handshakes that fail, on each port of a real service: all are counted by their reasons."""

import re
import socket
import ssl
import struct
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

import nnhal
from tests.concurrency import wait_until
from tests.end_to_end.support.models import ADD
from tests.end_to_end.support.service_process import Service, http_address, start_service, stop_service
from tests.service.tls.authority import Authority, Pair

CA, OTHER_CA = Authority(), Authority()
CLIENT = CA.issue("client@example.org")
MANY = 1000
SHADOW = ("--shadow", "CpuRef", "--shadow-share", "1")
_SAMPLE = re.compile(r'^nnhal_tls_failures_total\{port="(\w+)",reason="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass
class Counted:
    """A service, and the failures that its clients have caused so far, by port and reason."""

    service: Service
    folder: Path
    expected: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The ports with TLS."""
        assert wait_until(lambda: self.service.logged("admin-serving"), 60)
        admin = re.findall(r"admin-serving port=(\d+)", self.service.log.read_text())
        texts = {"grpc": self.service.target, "http": http_address(self.service), "admin": f":{admin[-1]}"}
        return {name: ("127.0.0.1", int(text.rpartition(":")[2])) for name, text in texts.items()}

    def context(self, pair: Pair | None = CLIENT, ca: Authority = CA) -> ssl.SSLContext:
        """Return what a client needs for TLS."""
        context = ssl.create_default_context(cadata=ca.pem.decode())
        context.set_alpn_protocols(["h2", "http/1.1"])
        if pair is not None:
            (self.folder / "client.pem").write_bytes(pair.key + pair.cert)
            context.load_cert_chain(self.folder / "client.pem")
        return context

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the metric."""
        url = f"https://{http_address(self.service)}/metrics"
        with urllib.request.urlopen(url, context=self.context(), timeout=60) as response:
            samples = _SAMPLE.findall(response.read().decode())
        return Counter({(port, reason): int(float(value)) for port, reason, value in samples})

    def check(self) -> None:
        """Wait until all failures are counted, each once."""
        wait_until(lambda: self.counts().total() >= self.expected.total(), 60)
        assert +self.counts() == self.expected


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """Yield a service with mutual TLS. Forked from a process that has used gRPC, it would not trace handshakes."""
    folder = tmp_path_factory.mktemp("service")
    CA.issue().write(folder)
    (folder / "ca.crt").write_bytes(CA.pem)
    (folder / "nnhal.toml").write_text("[policy.default]\nobserve = true\n")
    files = ("--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key", "--tls-client-ca", folder / "ca.crt")
    options = (
        "--config",
        folder / "nnhal.toml",
        "--http-listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--no-worker-per-identity",
        *SHADOW,
    )
    settings = {"NNHAL_BACKENDS": "CpuRef", "PYTHONUNBUFFERED": "1"}
    running = start_service(folder, *map(str, (*files, *options)), **settings)
    yield Counted(running, folder)
    assert stop_service(running) == 0


def handshake(address: tuple[str, int], context: ssl.SSLContext) -> None:
    """Do a handshake, after which a server sends something or closes the connection."""
    with socket.create_connection(address, 60) as connection, suppress(OSError):
        context.wrap_socket(connection, server_hostname="localhost").recv(1)


def send(address: tuple[str, int], data: bytes, *, is_answered: bool = True) -> None:
    """Send bytes, and close the connection; by default when the server has done so."""
    with socket.create_connection(address, 60) as connection, suppress(ConnectionError):
        connection.sendall(data)
        while is_answered and connection.recv(100):
            pass


def reset(address: tuple[str, int], data: bytes) -> None:
    """Send bytes, and end the connection without a farewell."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(data)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def client_hello() -> bytes:
    """Return the first message of a handshake."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def old_version(context: ssl.SSLContext) -> ssl.SSLContext:
    """Limit a client to TLS 1.0."""
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    return context


def until_1_2(context: ssl.SSLContext) -> ssl.SSLContext:
    """Limit a client to TLS 1.2."""
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


Address = tuple[str, int]
FAILURES: dict[str, tuple[str, Callable[[Counted, Address], None]]] = {
    "HTTP": ("not_tls", lambda c, address: send(address, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")),
    "gRPC": ("not_tls", lambda c, address: send(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
    "zeros": ("not_tls", lambda c, address: send(address, bytes(100))),
    "TLS 1.0": ("version", lambda c, address: handshake(address, old_version(c.context()))),
    "expired": ("expired", lambda c, address: handshake(address, c.context(CA.issue("a@b.c", period="past")))),
    "not valid yet": (
        "untrusted",
        lambda c, address: handshake(address, c.context(CA.issue("a@b.c", period="future"))),
    ),
    "of another CA": ("untrusted", lambda c, address: handshake(address, c.context(OTHER_CA.issue("a@b.c")))),
    "of another CA 1.2": (
        "untrusted",
        lambda c, address: handshake(address, until_1_2(c.context(OTHER_CA.issue("a@b.c")))),
    ),
    "service not trusted": ("rejected", lambda c, address: handshake(address, c.context(ca=OTHER_CA))),
    "service not trusted 1.2": ("rejected", lambda c, address: handshake(address, until_1_2(c.context(ca=OTHER_CA)))),
    "closed": ("closed", lambda c, address: send(address, b"", is_answered=False)),
    "closed in a message": ("closed", lambda c, address: send(address, client_hello()[:50], is_answered=False)),
    "reset": ("closed", lambda c, address: reset(address, client_hello()[:50])),
    "closed in the middle": ("closed", lambda c, address: send(address, client_hello(), is_answered=False)),
}


@pytest.mark.parametrize("port", ["grpc", "http", "admin"])
@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_counted_by_reason(counted: Counted, port: str, name: str) -> None:
    reason, fail = FAILURES[name]
    fail(counted, counted.addresses[port])
    counted.expected[port, reason] += 1
    counted.check()


def test_a_missing_certificate_is_a_failure_for_grpc_only(counted: Counted) -> None:
    for port in ("grpc", "admin"):
        handshake(counted.addresses[port], counted.context(None))
        counted.expected[port, "no_certificate"] += 1
    with socket.create_connection(counted.addresses["http"], 60) as connection:
        counted.context(None).wrap_socket(connection, server_hostname="localhost").close()
    counted.check()


def test_good_clients_are_not_counted(counted: Counted) -> None:
    for _ in range(3):
        with nnhal.connect(counted.service.target, ca=CA.pem, cert=CLIENT.cert, key=CLIENT.key) as device:
            device.prepare(ADD).result(60).close()
    for address in counted.addresses.values():
        with socket.create_connection(address, 60) as connection:
            counted.context().wrap_socket(connection, server_hostname="localhost").close()
    with grpc.secure_channel(
        counted.service.target, grpc.ssl_channel_credentials(CA.pem, CLIENT.key, CLIENT.cert)
    ) as c:
        grpc.channel_ready_future(c).result(60)
    counted.check()


def test_many_at_once_are_counted_and_have_few_lines(counted: Counted) -> None:
    def fail(number: int) -> None:
        send(counted.addresses[("grpc", "http")[number % 2]], b"GET / HTTP/1.1\r\n\r\n")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(fail, range(MANY)))
    counted.expected.update({("grpc", "not_tls"): MANY // 2, ("http", "not_tls"): MANY // 2})
    counted.check()
    lines = [line for line in counted.service.log.read_text().splitlines() if "action=handshake" in line]
    assert 2 <= len(lines) <= 20
    assert sum("by=ipv4:127.0.0.1 " in line for line in lines) >= 2
    assert not counted.service.logged("worker-output")


def test_traces_stay_out_of_the_log(counted: Counted, tmp_path: Path) -> None:
    plain = start_service(tmp_path, *SHADOW, NNHAL_BACKENDS="CpuRef")
    try:
        with nnhal.connect(plain.target, timeout=60, transport="grpc") as device:
            device.prepare(ADD).result(60).close()
    finally:
        assert stop_service(plain) == 0
    for service in (plain, counted.service):
        assert not re.findall("handshake_manager|handshaker|gRPC Tracers", service.log.read_text())
