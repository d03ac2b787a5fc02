"""Routes of the HTTP port, and who may use them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.web.application import WebApplication
from tests.service.operating.web.asgi_client import AsgiResponse, request
from tests.service.operating.web.fake_access import ADMIN, OBSERVER, STRANGER, FakeAccess
from tests.service.operating.web.fake_view import FakeView

POST = {"x-nnhal-request": "1", "content-type": "application/json"}
LISTS = ("devices", "workers", "sessions", "models", "quarantine", "warnings", "settings", "abilities", "members")


@pytest.fixture
def view() -> FakeView:
    return FakeView(now=1_000_000.0)


def get(application: WebApplication, path: str, **headers: str) -> AsgiResponse:
    return request(application.asgi, "GET", path, headers)


def post(application: WebApplication, name: str, body: object, headers: Mapping[str, str] = POST) -> AsgiResponse:
    authorized = {"authorization": ADMIN, **headers}
    return request(application.asgi, "POST", f"/api/v1/actions/{name}", authorized, json.dumps(body).encode())


def test_health_does_not_ask_the_service(view: FakeView) -> None:
    view.failure = OSError("the service is dead")
    response = get(WebApplication(view), "/healthz", host="anything.example")
    assert (response.status, response.body) == (200, b"ok\n")


def test_readiness_takes_a_snapshot_when_the_last_one_is_old(view: FakeView) -> None:
    application = WebApplication(view)
    assert get(application, "/readyz").body == b"ready\n"
    view.failure = OSError("/secret")
    application.observer.forget()  # as a second does
    response = get(application, "/readyz")
    assert (response.status, response.body) == (503, b"the service does not answer\n")
    view.failure = None
    assert get(application, "/readyz").body == b"ready\n"


def test_metrics_have_their_content_type(view: FakeView) -> None:
    response = get(WebApplication(view), "/metrics")
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.body == b"# EOF\n"


def test_every_resource_of_the_index_can_be_read(view: FakeView) -> None:
    application = WebApplication(view)
    for path in get(application, "/api/v1").json["resources"]:
        assert get(application, path).status == 200, path


def test_resources_have_the_values_of_the_view(view: FakeView) -> None:
    application = WebApplication(view)
    snapshot = application.observer.snapshot()
    overview = get(application, "/api/v1/service").json
    assert overview["addresses"] == list(snapshot.addresses)
    assert overview["counts"]["sessions"] == len(snapshot.sessions)
    for name in LISTS:
        assert isinstance(get(application, f"/api/v1/{name}").json, list)
    model = get(application, "/api/v1/models").json[0]
    assert model["partitions"][1]["reasons"] == ["CpuAcc: the operation has no converter"]


def test_unknown_paths_and_malformed_queries_are_refused(view: FakeView) -> None:
    application = WebApplication(view)
    assert get(application, "/api/v1/nothing").status == 404
    assert get(application, "/../settings.py").status == 404
    assert get(application, "/vendor").status == 404
    assert get(application, "/api/v1/history?since=yesterday").status == 400


def test_an_error_of_the_service_stays_in_the_log(view: FakeView) -> None:
    view.failure = OSError("secret path")
    response = get(WebApplication(view), "/api/v1/models")
    assert response.status == 503
    assert b"secret" not in response.body
    assert "content-security-policy" in response.headers


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/models", "/api/v1/abilities", "/api/v1/settings"])
def test_a_service_that_does_not_answer_is_unavailable(view: FakeView, path: str) -> None:
    view.failure = AdminError("the supervisor did not answer within 10 s")
    response = get(WebApplication(view), path)
    assert (response.status, response.json) == (503, {"error": "the supervisor did not answer within 10 s"})


def test_nobody_administers_without_identities(view: FakeView) -> None:
    application = WebApplication(view)
    assert get(application, "/api/v1/caller").json == {
        "identity": "anonymous",
        "may_observe": True,
        "may_administer": False,
    }
    response = request(application.asgi, "POST", "/api/v1/actions/reload", POST)
    assert response.status == 403
    assert view.actions == []


@pytest.mark.parametrize(
    ("token", "path", "status"),
    [
        ("", "/api/v1/models", 401),
        ("Bearer wrong", "/api/v1/models", 401),
        (STRANGER, "/api/v1/models", 403),
        (STRANGER, "/metrics", 403),
        (OBSERVER, "/api/v1/models", 200),
        (OBSERVER, "/metrics", 200),
        (ADMIN, "/api/v1/models", 200),
        ("", "/metrics", 401),
        ("", "/", 200),
        ("", "/healthz", 200),
        ("", "/api/v1/caller", 200),
    ],
)
def test_callers_read_what_they_may(view: FakeView, token: str, path: str, status: int) -> None:
    headers = {"authorization": token} if token else {}
    response = get(WebApplication(view, FakeAccess()), path, **headers)
    assert response.status == status
    assert ("www-authenticate" in response.headers) == (status == 401)


@pytest.mark.parametrize(
    ("name", "body", "action"),
    [
        ("drain", {"worker": 1}, ("drain", "token:admin", 1)),
        ("resume", {}, ("resume", "token:admin", None)),
        ("reload", {}, ("reload", "token:admin")),
        ("end-session", {"session": "s001"}, ("end_session", "token:admin", "s001")),
        ("clear-quarantine", {"digests": ["ab"]}, ("clear_quarantine", "token:admin", ("ab",))),
        ("clear-cache", {"identity": "token:bob"}, ("clear_cache", "token:admin", "token:bob", ())),
        ("set-log-level", {"level": "DEBUG"}, ("set_log_level", "token:admin", "DEBUG")),
    ],
)
def test_administrators_act(view: FakeView, name: str, body: object, action: tuple[object, ...]) -> None:
    response = post(WebApplication(view, FakeAccess()), name, body)
    assert response.status == 200
    assert response.json == {"result": f"done: {action[0]}"}
    assert view.actions == [action]


def test_observers_do_not_act(view: FakeView) -> None:
    assert post(WebApplication(view, FakeAccess()), "reload", {}, {**POST, "authorization": OBSERVER}).status == 403
    assert view.actions == []


@pytest.mark.parametrize(
    ("name", "body", "status", "text"),
    [
        ("explode", {}, 404, "there is no action 'explode'"),
        ("drain", [], 400, "not a JSON object"),
        ("drain", {"worker": "1"}, 400, "invalid worker '1'"),
        ("drain", {"worker": True}, 400, "invalid worker True"),
        ("end-session", {}, 400, "invalid session None"),
        ("clear-quarantine", {"digests": [1]}, 400, "invalid digests [1]"),
        ("end-session", {"session": "unknown"}, 409, "there is no session 'unknown'"),
        ("reload", {"padding": "x" * 70000}, 413, "more than 65536 bytes"),
    ],
)
def test_invalid_actions_are_refused(view: FakeView, name: str, body: object, status: int, text: str) -> None:
    response = post(WebApplication(view, FakeAccess()), name, body)
    assert response.status == status
    assert text in response.json["error"]
    assert view.actions == []


def test_actions_are_visible_at_once(view: FakeView) -> None:
    application = WebApplication(view, FakeAccess())
    before = application.observer.snapshot()
    assert application.observer.snapshot() is before
    post(application, "reload", {})
    assert application.observer.snapshot() is not before


def test_an_error_of_an_action_is_told(view: FakeView) -> None:
    view.failure = AdminError("the service stops")
    response = post(WebApplication(view, FakeAccess()), "reload", {})
    assert (response.status, response.json) == (409, {"error": "the service stops"})


def test_every_resource_and_action_is_documented(view: FakeView) -> None:
    index = get(WebApplication(view), "/api/v1").json
    document = (Path(__file__).resolve().parents[4] / "docs" / "page.md").read_text()
    for path in (*index["resources"], *index["actions"]):
        assert f"`{path.rpartition('/')[2]}`" in document, path
