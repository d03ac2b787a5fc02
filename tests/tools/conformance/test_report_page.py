"""The HTML report, opened in headless Chromium: its script runs, filters filter, and nothing escapes.

There is no driver: what a reader would do is a script that is put behind the page's own.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from tools.conformance.check import Result, Status
from tools.conformance.report import write_html
from tools.conformance.run import Where

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=3000"),
]
START_S = 120

WHERE = Where("localhost:1", "nnhal-cpu")
PASSED, FAILED, SKIPPED, UNSUPPORTED = Status
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">'&amp;\u2028"

opened = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


def result(name: str, status: Status, suite: str, operations: Sequence[str] = (), **more: object) -> Result:
    placed = [(operation, "CpuRef") for operation in operations]
    return Result(name, suite, "", status, operations=placed, **more)  # type: ignore[arg-type]


RESULTS = [
    result("plain", PASSED, "generated", ["ADD"], checks=["GEN-14"], types=["TENSOR_QUANT8_ASYMM"]),
    result("wrong", FAILED, "generated", ["ADD", "MUL"], check="GEN-18", stimulus="it ran", expected="one", got="two"),
    result("unable", FAILED, "generated", ["CONV_2D"], check="GEN-20", reason="GEN-20: a reason"),
    result("dynamic", SKIPPED, "generated", ["ADD"], check="X2", reason="X2: not so"),
    result("fenced", UNSUPPORTED, "fenced", ["ADD"], reason="no such call"),
    result("BASIC-01 the device", FAILED, "basic", check="BASIC-01", reason="silent", checks=["BASIC-01", "COM-02"]),
]


class Opened(HTMLParser):
    """A page as its script left it.

    Attributes:
        names: of the results that are listed.
        texts: text by the id of the innermost element that has one.
        details: terms and descriptions of expanded results, in order.
        title: of the document.
    """

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.details: list[str] = []
        self.texts: dict[str, str] = {}
        self.title = ""
        self._open: list[tuple[str, str, str]] = []
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"meta", "input", "i", "wbr", "link", "img", "br"}:
            return
        known = dict(attrs)
        self._open.append((tag, known.get("id") or "", known.get("class") or ""))
        if (tag, known.get("class")) == ("span", "name"):
            self.names.append("")
        if tag in {"dt", "dd"}:
            self.details.append("")

    def handle_endtag(self, tag: str) -> None:
        while any(tag == entry[0] for entry in self._open) and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _, _ in self._open]
        if ("span", "", "name") in self._open:
            self.names[-1] += data
        if "dt" in tags or "dd" in tags:
            self.details[-1] += data
        if tags[-1:] == ["title"]:
            self.title += data
        if found := [id_ for _, id_, _ in self._open if id_]:
            self.texts[found[-1]] = self.texts.get(found[-1], "") + data


def chromium(folder: Path, page: Path, fragment: str, *flags: str) -> bytes:
    """What Chromium prints for a page, with a profile of its own."""
    assert CHROMIUM is not None
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has none
    profile = f"--user-data-dir={folder / f'profile-{time.monotonic_ns()}'}"
    command = [CHROMIUM, *FLAGS, *sandbox, profile, *flags, f"{page.as_uri()}{fragment}"]
    return subprocess.run(command, check=True, capture_output=True, timeout=START_S).stdout


def open_page(
    folder: Path, fragment: str = "", *flags: str, results: Sequence[Result] = RESULTS, then: str = ""
) -> Opened:
    """Opens a report.

    Args:
        fragment: "#" and the filter.
        then: a script that runs when the page has been made.
    """
    page = folder / "report.html"
    write_html(page, WHERE, results)
    if then:
        page.write_text(page.read_text() + f"<script>{then}</script>")
    return Opened(chromium(folder, page, fragment, "--dump-dom", *flags).decode())


@opened
@pytest.mark.parametrize(
    ("fragment", "names"),
    [
        ("", ["wrong", "unable", "BASIC-01 the device", "fenced", "dynamic", "plain"]),
        ("#status=failed&operation=ADD", ["wrong"]),
        ("#operation=ADD", ["wrong", "fenced", "dynamic", "plain"]),
        ("#suite=basic", ["BASIC-01 the device"]),
        ("#check=GEN-20", ["unable"]),
        ("#check=X2", []),
        ("#text=CPUREF+quant8", ["plain"]),
        ("#text=such%20call", ["fenced"]),
        ("#status=gone", []),
    ],
)
def test_the_part_of_the_address_behind_the_hash_filters(tmp_path: Path, fragment: str, names: list[str]) -> None:
    page = open_page(tmp_path, fragment)
    assert page.names == names
    wanted = {6: "All 6 results", 0: "None of 6 results fits"}.get(len(names), f"{len(names)} of 6 results")
    assert page.texts["count"] == wanted


@opened
def test_a_failure_shows_stimulus_expectation_answer_and_placement(tmp_path: Path) -> None:
    page = open_page(tmp_path, "#text=wrong&expand=1")
    assert page.details == [
        *("Check", "GEN-18: the data is the vector's, within its tolerance"),
        *("Stimulus", "it ran", "Expected", "one", "Got", "two"),
        *("Operations", "ADD on CpuRefMUL on CpuRef"),
    ]


@opened
def test_a_result_opens_on_a_click(tmp_path: Path) -> None:
    page = open_page(tmp_path, "#suite=basic", then="document.querySelector('summary').click()")
    assert page.details == [
        "Check",
        "BASIC-01: the device is there and answers",
        "Reason",
        "silent",
        "Also broken",
        "COM-02",
    ]


@opened
@pytest.mark.parametrize(
    ("act", "names"),
    [
        ("document.querySelector('[data-status=skipped]').click()", ["dynamic"]),
        ("form.text.value = 'UNABLE'; form.dispatchEvent(new Event('input'))", ["unable"]),
        ("form.operation.value = 'MUL'; form.dispatchEvent(new Event('input'))", ["wrong"]),
        ("document.querySelector('.by-operation a.failed[href*=ADD]').click()", ["wrong"]),
        ("document.querySelector('.by-check a').click()", ["BASIC-01 the device"]),
    ],
)
def test_controls_and_links_filter(tmp_path: Path, act: str, names: list[str]) -> None:
    page = open_page(tmp_path, then=f"const form = document.getElementById('filters'); {act}")
    assert page.names == names


@opened
def test_filters_are_cleared(tmp_path: Path) -> None:
    page = open_page(tmp_path, "#status=failed&text=x", then="document.getElementById('clear').click()")
    assert len(page.names) == len(RESULTS)


@opened
def test_the_address_follows_the_controls(tmp_path: Path) -> None:
    act = "document.querySelector('[data-status=failed]').click(); document.title = location.hash"
    assert open_page(tmp_path, "#suite=basic", then=act).title == "#status=failed&suite=basic"


@opened
def test_names_and_reasons_are_text_whatever_they_hold(tmp_path: Path) -> None:
    hostile = result(HOSTILE, FAILED, HOSTILE, [HOSTILE], check=HOSTILE, stimulus=HOSTILE, expected="", got=HOSTILE)
    page = open_page(tmp_path, "#expand=1", results=[hostile], then="document.querySelector('.by-suite a').click()")
    assert page.title == "1 failed of 1 – conformance of localhost:1"
    assert page.names == [HOSTILE]
    assert page.details[3] == HOSTILE
    assert page.texts["count"] == "All 1 results"


@opened
def test_many_results_are_made_as_they_are_scrolled_to(tmp_path: Path) -> None:
    many = [result(f"case {i}", PASSED, "generated", ["ADD"], types=["TENSOR_FLOAT32"] * 50) for i in range(20_000)]
    page = open_page(tmp_path, results=many)
    assert page.texts["count"] == "All 20,000 results"
    assert 50 < len(page.names) < 300
    assert (tmp_path / "report.html").stat().st_size < 4_000_000
    more = open_page(tmp_path, results=many, then="document.getElementById('more').click()")
    assert len(more.names) == len(page.names) + 100
    assert open_page(tmp_path, "#text=case+19999", results=many).names == ["case 19999"]


@opened
def test_it_has_a_light_and_a_dark_look_and_fits_a_narrow_window(tmp_path: Path) -> None:
    # A window without a screen is at least 500 pixels wide.
    act = """
        document.body.style = "width: 400px; margin: 0";
        const outside = [...document.body.querySelectorAll("*")].filter(node => !node.closest(".scroll"));
        document.title = Math.max(...outside.map(node => node.getBoundingClientRect().right));
    """
    long = result("long_name" * 20, FAILED, "s" * 90, ["O" * 90], check="GEN-18", got="0x" + "f" * 300)
    page = open_page(tmp_path, "#expand=1", "--window-size=500,900", results=[*RESULTS, long], then=act)
    assert 300 < float(page.title) <= 400
    brightness = []
    for scheme in (1, 0):
        shot = tmp_path / f"{scheme}.png"
        look = (f"--screenshot={shot}", "--window-size=1200,900", f"--blink-settings=preferredColorScheme={scheme}")
        chromium(tmp_path, tmp_path / "report.html", "#expand=1", *look)
        with Image.open(shot) as image:
            brightness.append(ImageStat.Stat(image.convert("L")).mean[0])
    assert brightness[0] > 200
    assert brightness[1] < 60


def test_it_loads_nothing(tmp_path: Path) -> None:
    write_html(tmp_path / "report.html", WHERE, RESULTS)
    text = (tmp_path / "report.html").read_text()
    assert not re.search(r"https?:|\bsrc=|<link|@import|url\(", text)


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        (RESULTS, "3 of 6 checks failed"),
        (RESULTS[:1], "All 1 checks passed"),
        ([RESULTS[0], RESULTS[3]], "No check failed; 1 of 2 passed"),
        ([], "No check ran"),
    ],
)
def test_the_heading_says_how_it_went(tmp_path: Path, kept: list[Result], verdict: str) -> None:
    write_html(tmp_path / "report.html", WHERE, kept)
    assert f">{verdict}</h1>" in (tmp_path / "report.html").read_text()
