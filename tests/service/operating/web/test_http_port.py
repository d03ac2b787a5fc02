"""HTTP port on a socket: identities, TLS that follows its files, and its end."""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from nnhal_service.identity.policy import IdentityRules, Policy
from nnhal_service.identity.tokens import create_token
from nnhal_service.operating.web import http_server
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


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost: local"])
def test_connections_without_a_request_are_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http_server, "_FIRST_REQUEST_S", 0.05)
    with serving(Settings(http_listen="127.0.0.1:0"), FakeView()) as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            connection.sendall(sent)
            assert connection.recv(1) == b""


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
