"""HTTP port on a socket: identities, TLS that follows its files, and its end."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from nnhal_service.identity.policy import IdentityRules, Policy
from nnhal_service.identity.tokens import create_token
from nnhal_service.operating.web import http_server, tls_connection
from nnhal_service.operating.web.http_port import HttpPort
from nnhal_service.settings import Settings
from tests.service.operating.web.fake_view import FakeView

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextmanager
def serving(settings: Settings, view: FakeView) -> Iterator[str]:
    """Serve, and yield HOST:PORT."""
    host, _, number = str(settings.http_listen).rpartition(":")
    with (
        socket.create_server((host, int(number))) as listener,
        closing(HttpPort(settings, view, listener, lambda: settings)),
    ):
        yield f"{host}:{listener.getsockname()[1]}"


def call(
    connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[int, Any]:
    connection.request(method, path, body=b"{}" if method == "POST" else None, headers=headers or {})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def plain(address: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(address, timeout=TIMEOUT_S)


def write(certificate: trustme.LeafCert, folder: Path) -> None:
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "new.pem"))
    (folder / "new.pem").rename(folder / "service.pem")


def test_tokens_have_the_rights_of_the_policy(tmp_path: Path) -> None:
    view = FakeView()
    tokens, lines = zip(*(create_token(name) for name in ("alice", "prometheus", "camera")), strict=True)
    (tmp_path / "tokens").write_text("\n".join(lines))
    (tmp_path / "tokens").chmod(0o600)
    policy = Policy(
        identities={"token:alice": IdentityRules(administer=True), "token:prometheus": IdentityRules(observe=True)},
    )
    settings = Settings(http_listen="127.0.0.1:0", tokens=tmp_path / "tokens", policy=policy)
    action = {"x-nnhal-request": "1", "content-type": "application/json"}
    statuses = []
    with serving(settings, view) as address:
        connection = plain(address)
        for token in (*tokens, "wrong"):
            headers = {"authorization": f"Bearer {token}"}
            read = call(connection, "/api/v1/service", headers)[0]
            reload = call(connection, "/api/v1/actions/reload", {**headers, **action}, "POST")[0]
            statuses.append((read, reload))
        anonymous = call(connection, "/api/v1/service")
        connection.close()
    assert statuses == [(200, 200), (200, 403), (403, 403), (401, 401)]
    assert anonymous == (401, {"error": "sign in to observe the service"})
    assert view.actions == [("reload", "token:alice")]


def test_tls_follows_its_files_and_identifies_certificates(tmp_path: Path, authority: trustme.CA) -> None:
    write(authority.issue_cert("localhost"), tmp_path)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    settings = Settings(
        http_listen="localhost:0",
        tls_cert=tmp_path / "service.pem",
        tls_key=tmp_path / "service.pem",
        tls_client_ca=tmp_path / "ca.pem",
    )
    anonymous, operator, stranger = (ssl.create_default_context() for _ in range(3))
    for context in (anonymous, operator, stranger):
        authority.configure_trust(context)
    authority.issue_cert(common_name="operator", organization_name=None).configure_cert(operator)
    trustme.CA().issue_cert("localhost").configure_cert(stranger)
    with serving(settings, FakeView()) as address:
        host, _, port = address.rpartition(":")

        def connect(context: ssl.SSLContext) -> http.client.HTTPSConnection:
            return http.client.HTTPSConnection(host, int(port), timeout=TIMEOUT_S, context=context)

        first = connect(anonymous)
        assert call(first, "/api/v1/caller")[1]["identity"] == "anonymous"
        assert call(connect(operator), "/api/v1/caller")[1]["identity"].startswith("certificate:")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            call(connect(stranger), "/api/v1/caller")

        assert first.sock is not None
        before = first.sock.getpeercert(binary_form=True)
        write(authority.issue_cert("localhost"), tmp_path)
        second = connect(anonymous)
        assert call(second, "/api/v1/caller")[0] == 200
        assert second.sock is not None
        assert second.sock.getpeercert(binary_form=True) != before
        assert call(first, "/api/v1/caller")[0] == 200, "open connections are not touched"
        without = plain(address)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            call(without, "/healthz")
        for connection in (first, second, without):
            connection.close()


def test_the_port_is_free_after_the_end() -> None:
    with serving(Settings(http_listen="127.0.0.1:0"), FakeView()) as address:
        connection = plain(address)
        assert call(connection, "/api/v1/service")[0] == 200
    with pytest.raises(ConnectionError):
        call(plain(address), "/api/v1/service")
    connection.close()
    with serving(Settings(http_listen=address), FakeView()) as again:
        assert again == address


HALF = b"GET /healthz HTTP/1.1\r\nhost: local"
WHOLE = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
BODY = b"POST /api/v1/actions/reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"


@contextmanager
def connected(address: str, sent: bytes = b"", host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Connect from an address of this machine, and send something."""
    to, _, port = address.rpartition(":")
    with socket.create_connection((to, int(port)), TIMEOUT_S, (host, 0)) as connection:
        connection.sendall(sent)
        yield connection


def has_ended(connection: socket.socket) -> bool:
    """Wait until the service has ended a connection, and return True."""
    with suppress(ConnectionError):
        while connection.recv(1000):
            pass
    return True


def status_from(connection: socket.socket) -> int:
    """Read a whole response, and return its status."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


@pytest.mark.parametrize("sent", [b"", HALF, BODY])
def test_connections_without_a_whole_request_are_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http_server, "_REQUEST_S", 0.05)
    with serving(Settings(http_listen="127.0.0.1:0"), FakeView()) as address, connected(address, sent) as connection:
        assert has_ended(connection)


def test_later_requests_are_limited_in_time_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Settings(http_listen="127.0.0.1:0"), FakeView()) as address, connected(address, WHOLE) as connection:
        assert status_from(connection) == 200
        monkeypatch.setattr(http_server, "_REQUEST_S", 0.05)
        connection.sendall(HALF)
        assert has_ended(connection)


def test_handshakes_are_limited_in_time(tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    write(authority.issue_cert("127.0.0.1"), tmp_path)
    key = tmp_path / "service.pem"
    monkeypatch.setattr(tls_connection, "HANDSHAKE_S", 0.05)
    settings = Settings(http_listen="127.0.0.1:0", tls_cert=key, tls_key=key)
    with serving(settings, FakeView()) as address, connected(address) as connection:
        assert has_ended(connection)


@pytest.mark.parametrize("sent", [b"", HALF])
@pytest.mark.parametrize("hosts", [1, 5])
def test_waiting_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch, sent: bytes, hosts: int) -> None:
    monkeypatch.setattr(http_server, "_REQUEST_S", TIMEOUT_S)
    monkeypatch.setattr(http_server, "_MAX_OF_HOST", 3)
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 10)
    names = [f"127.0.0.{number + 2}" for number in range(hosts)] * 6
    with serving(Settings(http_listen="127.0.0.1:0"), FakeView()) as address, ExitStack() as stack:
        silent = [stack.enter_context(connected(address, sent, host)) for host in names]
        for host in ("127.0.0.1", "127.0.0.2"):  # another host, and the same one
            with connected(address, WHOLE, host) as connection:
                assert status_from(connection) == 200
        assert has_ended(silent[0])
        silent[-1].setblocking(False)
        with pytest.raises(BlockingIOError):  # the latest one is still open
            silent[-1].recv(1)


def test_requests_in_progress_are_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_OF_HOST", 3)
    view, asked, may_answer = FakeView(), threading.Event(), threading.Event()

    def metrics(accept: str) -> tuple[bytes, str]:
        asked.set()
        return str(may_answer.wait(TIMEOUT_S)).encode(), "text/plain"

    monkeypatch.setattr(view, "metrics", metrics)
    with serving(Settings(http_listen="127.0.0.1:0"), view) as address, ExitStack() as stack:
        working = stack.enter_context(connected(address, WHOLE.replace(b"healthz", b"metrics")))
        assert asked.wait(TIMEOUT_S)
        silent = [stack.enter_context(connected(address, HALF)) for _ in range(6)]
        assert all(map(has_ended, silent[:3]))
        may_answer.set()
        assert status_from(working) == 200


def test_hosts_with_many_requests_in_progress_keep_no_other_host_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 4)
    view, asked, may_answer = FakeView(), threading.Semaphore(0), threading.Event()

    def metrics(accept: str) -> tuple[bytes, str]:
        asked.release()
        return str(may_answer.wait(TIMEOUT_S)).encode(), "text/plain"

    monkeypatch.setattr(view, "metrics", metrics)
    with serving(Settings(http_listen="127.0.0.1:0"), view) as address, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(address, WHOLE.replace(b"healthz", b"metrics"), "127.0.0.2"))
            assert asked.acquire(timeout=TIMEOUT_S)
        with connected(address, WHOLE, "127.0.0.1") as connection:
            assert status_from(connection) == 200
        may_answer.set()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"not http\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 70000, b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
    ],
)
def test_malformed_requests_are_refused(sent: bytes, status: bytes) -> None:
    with serving(Settings(http_listen="127.0.0.1:0"), FakeView()) as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            connection.sendall(sent)
            assert connection.recv(100).split()[1] == status
        assert call(plain(address), "/api/v1/caller")[0] == 200


def test_other_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        Settings(http_listen="unix:/tmp/http.sock")
    with pytest.raises(ValueError, match="can be reached from other machines"):
        Settings(http_listen="0.0.0.0:8080").check_exposure()
    Settings(http_listen="0.0.0.0:8080", insecure=True).check_exposure()
