"""Keys of an issuer at a URL: how workers, which cannot connect to it, get them."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import nnhal
from nnhal_service.identity.jwks import fetcher
from nnhal_service.identity.key_fetcher import KeyFetcher
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.service.identity.issuer import AUDIENCE, ISSUER, Issuer


class Site:
    """Web server of an issuer.

    Attributes:
        issuer: the issuer.
        url: where its keys are.
        status: status of the answers.
    """

    def __init__(self) -> None:
        self.issuer, self.status = Issuer(), 200
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(site.status)
                self.send_header("Location", "/keys")
                self.end_headers()
                self.wfile.write(site.issuer.key_set())

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


LOG = "INFO", "text"


@pytest.mark.slow
def test_a_worker_accepts_tokens_of_an_issuer_that_it_cannot_reach(site: Site, tmp_path: Path) -> None:
    options = ("--jwt-keys", site.url, "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE)
    service = start_service(tmp_path, *options)
    try:

        def connects() -> bool:
            try:
                nnhal.connect(service.target, token=site.issuer.token("alice")).close()
            except nnhal.HalError:  # the keys have not been fetched yet
                return False
            return True

        assert wait_until(connects)
        assert service.logged("identity=jwt:alice")
    finally:
        assert stop_service(service) == 0


def test_keys_are_fetched_again(site: Site) -> None:
    fetch = KeyFetcher(site.url, LOG, fetch_s=0.05, retry_s=0.05)
    try:
        path = Path(fetch.path)

        def fetched(text: bytes) -> bool:
            fetch.step()
            return path.exists() and path.read_bytes() == text

        assert wait_until(lambda: fetched(site.issuer.key_set()))
        before = site.issuer.key_set()
        site.status = 500
        requests = site.issuer.requests
        assert wait_until(lambda: fetched(before) and site.issuer.requests > requests)
        site.status, site.issuer = 200, Issuer()
        assert wait_until(lambda: fetched(site.issuer.key_set()))
    finally:
        fetch.close()
    assert not path.parent.exists()


def test_a_file_is_left_to_the_workers(tmp_path: Path) -> None:
    fetch = KeyFetcher(str(tmp_path / "keys"), LOG)
    fetch.step()
    assert fetch.path == str(tmp_path / "keys")
    fetch.close()


def test_redirects_are_not_followed(site: Site) -> None:
    site.status = 302
    with pytest.raises(ValueError, match="cannot fetch"):
        fetcher(site.url)()


@pytest.mark.parametrize("url", ["http://issuer.example/keys", "ftp://issuer.example/keys", "file:///etc/keys"])
def test_keys_that_others_could_replace_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected a path or a URL that starts with https"):
        fetcher(url)
