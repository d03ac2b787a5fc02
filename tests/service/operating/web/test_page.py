"""The page in headless Chromium: every view, by mouse and keyboard, in both themes, on wide and narrow screens."""

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nnhal_service.operating.web.application import WebApplication
from nnhal_service.operating.web.http_server import HttpServer
from tests.service.operating.web.browser import CHROMIUM, Browser, Page
from tests.service.operating.web.fake_access import ADMIN, FakeAccess
from tests.service.operating.web.fake_view import MARKUP, FakeView

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
WIDE, NARROW = (1440, 900), (360, 740)
VIEWS = {
    "overview": ["Throughput", "Worker 2 is draining", "unix:/run/nnhal/nnhal.sock"],
    "device": ["exact", "LSH_PROJECTION", "has no counterpart in the engine", "0.31"],
    "backends": ["cannot load libnpu.so", "dynamic shapes"],
    "models": ["m36", "49,356", "detector/3", "segmen…-v/14"],
    "sessions": ["camera-front", "spiffe://example.org/camera", "disconnected"],
    "members": ["nnhal-1-77aa12", "10.0.0.2:50051", "draining", "Npu"],
    "workers": ["pid 4250", "412 MiB", "signal 11 in CpuAcc"],
    "cache": ["/home/user/.cache/nnhal", "other version of a backend", "3.53 MiB", "detector/3"],
    "quarantine": ["hung for 12 s", "refused"],
    "warnings": ["queue-full", "bytes=2147483648 evicted=3"],
    "settings": ["listen", "NNHAL_LOG_LEVEL"],
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"),
]


class Site:
    """A server that can be stopped and started again at the same address."""

    def __init__(self, view: FakeView, access: FakeAccess) -> None:
        self.view = view
        self._access = access
        self._address = ("127.0.0.1", 0)
        self.start()
        self.url = f"http://127.0.0.1:{self._address[1]}/"

    def start(self) -> None:
        application = WebApplication(self.view, self._access)
        self._listener = socket.create_server(self._address)
        self._address = self._listener.getsockname()
        self._server = HttpServer(application.asgi, self._listener)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()
        self._listener.close()


@dataclass
class Open:
    """A page that is open.

    Attributes:
        page: the page.
        site: its server.
    """

    page: Page
    site: Site

    def show(self, view: str) -> None:
        """Show a view, and wait for its data."""
        self.page.open(f"{self.site.url}#/{view}")
        self.page.wait(
            f"document.querySelector('nav a[aria-current]')?.dataset.view === {json.dumps(view)}"
            " && !document.querySelector('.loading') && document.querySelector('main h1')"
        )

    def text(self) -> str:
        text: str = self.page.evaluate("document.body.innerText")
        return text

    def wait_for_state(self, text: str) -> None:
        """Wait for a state of the service, and have the page ask at once."""
        self.page.wait(
            "window.dispatchEvent(new Event('online'))"
            f" && document.querySelector('#state').innerText.includes({json.dumps(text)})"
        )

    def click(self, selector: str, text: str = "") -> None:
        self.page.wait(f"{_find(selector, text)}")
        self.page.evaluate(f"{_find(selector, text)}.click()")


def _find(selector: str, text: str) -> str:
    elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return f"{elements}.find((element) => element.innerText.includes({json.dumps(text)}))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def opened(browser: Browser, view: FakeView, access: FakeAccess) -> Iterator[Open]:
    site = Site(view, access)
    page = browser.page()
    page.resize(*WIDE)
    try:
        yield Open(page, site)
    finally:
        page.close()
        site.stop()


@pytest.fixture
def reader(browser: Browser) -> Iterator[Open]:
    """Yield the page of a caller that may only read."""
    yield from opened(browser, FakeView(), FakeAccess(is_open=True))


@pytest.fixture
def administrator(browser: Browser) -> Iterator[Open]:
    """Yield the page of a caller that has signed in as administrator."""
    for each in opened(browser, FakeView(), FakeAccess()):
        each.page.open(each.site.url)
        each.page.wait("document.body?.innerText.includes('Sign in as an identity')")
        each.page.evaluate(f"sessionStorage.setItem('nnhal-token', {json.dumps(ADMIN.removeprefix('Bearer '))})")
        each.page.command("Page.reload")
        each.page.wait("document.querySelector('#caller')?.innerText.includes('administrator')")
        yield each


def violations(page: Page) -> list[str]:
    """Return what axe-core finds: contrast, labels, roles, structure. The packages must be there if CI=true."""
    if not AXE.exists():
        if os.environ.get("CI") == "true":
            raise AssertionError(f"run `npm ci` in {AXE.parents[2]}")
        pytest.skip(f"run `npm ci` in {AXE.parents[2]}")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text() + "; true")
    found = page.evaluate(
        "axe.run({resultTypes: ['violations']}).then(({violations}) => violations.flatMap(({id, nodes}) =>"
        " nodes.map(({html, any}) => `${id}: ${html} ${any.map(({message}) => message).join()}`)))"
    )
    assert isinstance(found, list)
    return found


def check_view(reader: Open, view: str) -> None:
    reader.show(view)
    text = reader.text()
    for expected in VIEWS[view]:
        assert expected in text, view
    assert violations(reader.page) == [], view
    assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} is too wide"
    assert list(reader.page.problems) == []


@pytest.mark.parametrize(("scheme", "size", "first"), [("light", WIDE, 0), ("dark", NARROW, 1)])
def test_views_are_complete_and_accessible(reader: Open, scheme: str, size: tuple[int, int], first: int) -> None:
    reader.page.prefer(scheme)
    reader.page.resize(*size)
    for view in list(VIEWS)[first::2]:
        check_view(reader, view)


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW, (768, 1024), (2560, 1400)])
@pytest.mark.parametrize("kind", ["reader", "administrator"])
def test_views_in_all_themes_and_sizes(
    request: pytest.FixtureRequest, kind: str, scheme: str, size: tuple[int, int]
) -> None:
    page = request.getfixturevalue(kind)
    page.page.prefer(scheme)
    page.page.resize(*size)
    for view in VIEWS:
        check_view(page, view)


@pytest.mark.parametrize(("size", "columns"), [((1024, 768), 3), ((1920, 1080), 6)])
def test_screens_of_usual_widths_are_used(reader: Open, size: tuple[int, int], columns: int) -> None:
    """Tiles fill their rows, and the table of models is not cut: what it hides is with the details."""
    page = reader.page
    page.resize(*size)
    reader.show("overview")
    tops = page.evaluate("[...document.querySelectorAll('.tile')].map((tile) => tile.offsetTop)")
    assert [tops.count(top) for top in sorted(set(tops))] == [columns] * (6 // columns)
    assert page.evaluate("document.querySelector('.charts').getBoundingClientRect().right > innerWidth - 40")
    reader.show("models")
    assert page.evaluate(
        "(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)(document.querySelector('.scroll'))"
    )
    reader.click("button.toggle")
    page.wait("document.body.innerText.includes('14.4 ms')")


def test_texts_of_clients_are_not_markup(reader: Open) -> None:
    for view in ("sessions", "warnings"):
        reader.show(view)
        assert MARKUP in reader.text()
    assert reader.page.evaluate("document.querySelectorAll('img:not([src=\"icon.svg\"])').length") == 0
    assert list(reader.page.problems) == []


def test_tables_sort_and_filter_by_keyboard(reader: Open) -> None:
    page = reader.page
    reader.show("models")
    assert page.texts("tbody td.code:nth-child(2)")[0] == "m36"
    page.evaluate(f"{_find('th button', 'Model')}.focus()")
    page.press("Enter")
    assert page.evaluate("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    assert page.texts("tbody td.code:nth-child(2)")[:3] == ["m0", "m1", "m2"]
    page.press("Enter")
    assert page.texts("tbody td.code:nth-child(2)")[0] == "m36"

    page.evaluate("document.querySelector('input[type=search]').focus()")
    page.write("alice m3 CpuRef")
    assert page.texts("tbody td.code:nth-child(2)") == ["m36", "m33", "m30", "m3"]
    assert page.texts(".tools .hint") == ["4 of 37"]
    page.evaluate("document.querySelector('.toggle').focus()")
    page.press("Enter")
    assert "CpuAcc: the operation has no converter" in reader.text()
    assert page.evaluate("document.activeElement.className") == "toggle"


@pytest.mark.nightly
def test_every_view_is_reached_by_keyboard(reader: Open) -> None:
    page = reader.page
    reader.show("overview")
    page.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.evaluate("document.querySelector('nav a').focus()")
    for name in list(VIEWS)[1:3]:
        page.evaluate(f"document.querySelector('nav a[data-view={name}]').focus()")
        page.press("Enter")
        page.wait(f"document.title.toLowerCase().startsWith({json.dumps(name)})")
        page.wait("document.activeElement.id === 'content'")


@pytest.mark.nightly
def test_readers_get_no_buttons_that_change_the_service(reader: Open) -> None:
    for view in ("sessions", "workers", "quarantine", "cache", "settings"):
        reader.show(view)
        assert reader.page.evaluate("document.querySelectorAll('main button.small').length") == 0
    assert reader.page.texts("#caller") == ["anonymous, read-only"]


def test_administrators_confirm_actions(administrator: Open) -> None:
    page, view = administrator.page, administrator.site.view
    administrator.show("sessions")
    administrator.click("tbody tr button.small", "End")
    page.wait("document.querySelector('dialog[open]')")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    assert view.actions == []
    administrator.click("tbody tr button.small", "End")
    page.wait("document.querySelector('dialog[open]')")
    administrator.click("dialog button.danger")
    page.wait("document.querySelector('.toast')")
    assert page.texts(".toast") == ["done: end_session"]
    assert [action[:2] for action in view.actions] == [("end_session", "token:admin")]
    assert list(page.problems) == []


def test_the_page_survives_a_restart_of_the_service(reader: Open) -> None:
    reader.show("models")
    reader.site.stop()
    reader.wait_for_state("reconnecting")
    assert "m36" in reader.text(), "the last data stays"
    reader.site.start()
    reader.wait_for_state("serving")
    reader.site.view.failure = OSError("the workers do not answer")
    reader.wait_for_state("restarting")
    reader.site.view.failure = None
    reader.wait_for_state("serving")


def test_callers_sign_in(browser: Browser) -> None:
    for stranger in opened(browser, FakeView(), FakeAccess()):
        page = stranger.page
        page.open(stranger.site.url)
        page.wait("document.body?.innerText.includes('You may not see this service')")
        assert violations(page) == []
        stranger.click("#sign-in")
        page.wait("document.activeElement.id === 'token'")
        assert violations(page) == []
        page.write("admin-token")
        page.press("Enter")
        page.wait("document.querySelector('#caller').innerText === 'token:admin, administrator'")
        page.wait("document.querySelector('.tile')")
        stranger.click("#sign-in", "Sign out")
        page.wait("document.body?.innerText.includes('You may not see this service')")


@pytest.mark.nightly
def test_a_service_without_clients_has_empty_states(browser: Browser) -> None:
    for each in opened(browser, FakeView(is_empty=True), FakeAccess(is_open=True)):
        for view, text in {
            "models": "No prepared models",
            "sessions": "No sessions",
            "cache": "The cache is empty",
            "quarantine": "No model is in quarantine",
            "warnings": "No warnings",
        }.items():
            each.show(view)
            assert text in each.text()
        each.show("overview")
        assert "no executions yet" in each.text()
        assert violations(each.page) == []
        assert list(each.page.problems) == []


@pytest.mark.nightly
def test_the_theme_is_remembered(reader: Open) -> None:
    page = reader.page
    page.prefer("light")
    reader.show("overview")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    reader.click("#theme")
    reader.click("#theme")
    assert page.texts("#theme") == ["● Dark"]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.command("Page.reload")
    page.wait("document.querySelector('#theme')?.innerText === '● Dark'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark != light
