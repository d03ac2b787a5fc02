"""Requests of other sites: other host names, and changes without proof that our page sent them."""

import socket

import pytest

from nnhal_service.operating.web.application import WebApplication
from tests.service.operating.web.asgi_client import AsgiResponse, request
from tests.service.operating.web.fake_access import ADMIN, FakeAccess
from tests.service.operating.web.fake_view import FakeView

HEADERS = {"authorization": ADMIN, "x-nnhal-request": "1", "content-type": "application/json"}


@pytest.fixture
def view() -> FakeView:
    return FakeView(now=1_000_000.0)


@pytest.fixture
def application(view: FakeView) -> WebApplication:
    return WebApplication(view, FakeAccess(is_open=True), hosts=("nnhal.example",))


def reload(application: WebApplication, headers: dict[str, str]) -> AsgiResponse:
    return request(application.asgi, "POST", "/api/v1/actions/reload", headers)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "[::1]:8080", "[2001:db8::1]", "localhost", "LOCALHOST:80", "nnhal.example:8080", "192.0.2.7"],
)
def test_known_hosts_are_served(application: WebApplication, host: str) -> None:
    assert request(application.asgi, "GET", "/api/v1/service", {"host": host}).status == 200


def test_the_name_of_this_machine_is_known(application: WebApplication) -> None:
    assert request(application.asgi, "GET", "/", {"host": f"{socket.gethostname()}:8080"}).status == 200


@pytest.mark.parametrize("host", ["evil.example:8080", "", "127.0.0.1.evil.example", "localhost.evil.example"])
@pytest.mark.parametrize("path", ["/", "/api/v1/service", "/metrics", "/nothing"])
def test_names_that_a_site_points_at_this_machine_are_refused(
    application: WebApplication, host: str, path: str
) -> None:
    assert request(application.asgi, "GET", path, {"host": host}).status == 421


def test_with_tls_the_certificate_decides(view: FakeView) -> None:
    application = WebApplication(view, hosts=None)
    assert request(application.asgi, "GET", "/api/v1/service", {"host": "nnhal.internal"}).status == 200


@pytest.mark.parametrize(
    "change",
    [
        {"x-nnhal-request": None},
        {"content-type": "text/plain"},
        {"content-type": None},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9090"},
    ],
)
def test_changes_by_other_sites_are_refused(
    application: WebApplication, view: FakeView, change: dict[str, str | None]
) -> None:
    headers = {name: value for name, value in {**HEADERS, **change}.items() if value is not None}
    assert reload(application, headers).status == 403
    assert view.actions == []


def test_changes_by_the_page_and_by_programs_are_served(application: WebApplication, view: FakeView) -> None:
    page = {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"}
    assert reload(application, {**HEADERS, **page}).status == 200
    assert reload(application, HEADERS).status == 200
    assert len(view.actions) == 2


@pytest.mark.parametrize("path", ["/", "/api/v1/service", "/metrics", "/nothing", "/healthz"])
def test_every_response_has_the_protecting_headers(application: WebApplication, path: str) -> None:
    headers = request(application.asgi, "GET", path, {"origin": "http://evil.example"}).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "POST"])
def test_other_methods_change_nothing(application: WebApplication, method: str) -> None:
    assert request(application.asgi, method, "/api/v1/service", HEADERS).status == 405
