"""Connections of the HTTP port between their handshake and HTTP."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import trustme

from nnhal_service.operating.web import tls_connection
from nnhal_service.operating.web.http_port import HttpPort
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.service.operating.web.fake_view import FakeView

REQUEST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
AUTHORITY = trustme.CA()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the list of the labels of failures."""
    labels: list[tuple[str, ...]] = []

    class View(FakeView):
        def __init__(self) -> None:
            super().__init__()
            self.count = lambda metric, *names, amount=1: labels.extend([names] * amount)

    monkeypatch.setattr(f"{__name__}.FakeView", View)
    return labels


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve with TLS, and yield the address."""
    AUTHORITY.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file := folder / "tls.pem"))
    settings = Settings(http_listen="127.0.0.1:0", tls_cert=file, tls_key=file)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(HttpPort(settings, FakeView(), listener, lambda: settings)),
    ):
        yield listener.getsockname()


class Client:
    """Client that decides what goes into one packet. It has received what it needs to end its handshake."""

    def __init__(self, connection: socket.socket) -> None:
        context = ssl.create_default_context()
        AUTHORITY.configure_trust(context)
        self._connection = connection
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname="localhost")
        while not self._is_done():
            self.send()
            self._incoming.write(connection.recv(65536))

    def _is_done(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def send(self) -> None:
        """Send what has been written, at once."""
        self._connection.sendall(self.outgoing.read())

    def receive(self) -> bytes:
        """Return decrypted bytes; b"" at the end."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                if not (data := self._connection.recv(65536)):
                    return b""
                self._incoming.write(data)


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as address, socket.create_connection(address, 60) as connection:
        client = Client(connection)
        client.tls.write(REQUEST)
        client.send()
        assert client.receive().startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("request_", [b"", REQUEST])
def test_an_end_that_comes_with_the_end_of_the_handshake(
    tmp_path: Path, counted: list[tuple[str, ...]], request_: bytes, is_clean: bool
) -> None:
    with serving(tmp_path) as address:
        with socket.create_connection(address, 60) as connection:
            client = Client(connection)
            if request_:
                client.tls.write(request_)
            if is_clean:
                with pytest.raises(ssl.SSLWantReadError):
                    client.tls.unwrap()
            client.send()
        with socket.create_connection(address, 60) as connection:
            client = Client(connection)
            client.tls.write(REQUEST)
            client.send()
            assert client.receive().startswith(b"HTTP/1.1 200")
    assert counted == []


def test_a_silent_client_is_a_failure(
    tmp_path: Path, counted: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_connection, "HANDSHAKE_S", 0.05)
    with serving(tmp_path) as address, socket.create_connection(address, 60) as connection:
        assert connection.recv(1) == b""
        assert wait_until(lambda: counted == [("http", "timeout")], 60)


def test_handshakes_at_the_end_of_the_service_are_not_failures(tmp_path: Path, counted: list[tuple[str, ...]]) -> None:
    with ExitStack() as stack:
        with serving(tmp_path) as address:
            Client(stack.enter_context(socket.create_connection(address, 60)))  # its last message is not sent
        assert counted == []
