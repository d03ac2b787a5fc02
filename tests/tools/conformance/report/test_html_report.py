"""HTML report in headless Chromium: its script runs, its filters work, and its values are escaped.

The actions of a reader are scripts that are appended to the page.
"""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.report.html_report import write_html
from tests.tools.browser import needs_chromium, run_chromium
from tests.tools.conformance.report.sample_results import INFO, RESULTS_ON_PATHS

PASSED, FAILED, SKIPPED, UNSUPPORTED = Status
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">'&amp;\u2028"


def result(name: str, status: Status, suite: str, operations: Sequence[str] = (), **more: object) -> Result:
    on_backend = [(operation, "CpuRef") for operation in operations]
    return Result(name, suite, "", status, operations=on_backend, **more)  # type: ignore[arg-type]


RESULTS = [
    result("plain", PASSED, "generated", ["ADD"], checks=["GEN-14"], types=["TENSOR_QUANT8_ASYMM"]),
    result("wrong", FAILED, "generated", ["ADD", "MUL"], check="GEN-18", stimulus="it ran", expected="one", got="two"),
    result("unable", FAILED, "generated", ["CONV_2D"], check="GEN-20", reason="GEN-20: a reason"),
    result("dynamic", SKIPPED, "generated", ["ADD"], check="X2", reason="X2: not so"),
    result("fenced", UNSUPPORTED, "fenced", ["ADD"], reason="no such call"),
    result("BASIC-01 the device", FAILED, "basic", check="BASIC-01", reason="silent", checks=["BASIC-01", "COM-02"]),
]


class RenderedPage(HTMLParser):
    """Page after its script has run.

    Attributes:
        names: the names of the listed results.
        texts: text by the id of the innermost element with an id.
        details: terms and descriptions of expanded results, in order.
        title: the title of the document.
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
        if ids := [id_ for _, id_, _ in self._open if id_]:
            self.texts[ids[-1]] = self.texts.get(ids[-1], "") + data


def open_page(
    folder: Path, fragment: str = "", *flags: str, results: Sequence[Result] = RESULTS, then: str = ""
) -> RenderedPage:
    """Write a report and open it.

    Args:
        folder: a temporary folder.
        fragment: "#" and the filter.
        flags: further options of Chromium.
        results: the results of the report.
        then: a script that runs after the one of the page.
    """
    page = folder / "report.html"
    write_html(page, INFO, results)
    if then:
        page.write_text(page.read_text() + f"<script>{then}</script>")
    return RenderedPage(run_chromium(folder, page, fragment, "--dump-dom", *flags).decode())


@needs_chromium
@pytest.mark.parametrize(
    ("fragment", "names"),
    [
        ("", ["wrong", "unable", "BASIC-01 the device", "fenced", "dynamic", "plain"]),
        ("#status=failed&operation=ADD", ["wrong"]),
        ("#operation=ADD", ["wrong", "fenced", "dynamic", "plain"]),
        ("#suite=basic", ["BASIC-01 the device"]),
        ("#check=GEN-20", ["unable"]),
        ("#check=X2", []),
        ("#backend=CpuRef&status=passed", ["plain"]),
        ("#backend=Npu", []),
        ("#text=CPUREF+quant8", ["plain"]),
        ("#text=such%20call", ["fenced"]),
        ("#status=gone", []),
    ],
)
def test_fragment_of_the_address_filters(tmp_path: Path, fragment: str, names: list[str]) -> None:
    page = open_page(tmp_path, fragment)
    assert page.names == names
    expected = {6: "All 6 results", 0: "None of 6 results matches"}.get(len(names), f"{len(names)} of 6 results")
    assert page.texts["count"] == expected


@needs_chromium
def test_failure_shows_stimulus_expected_got_and_backends(tmp_path: Path) -> None:
    page = open_page(tmp_path, "#text=wrong&expand=1")
    assert page.details == [
        *("Check", "GEN-18: the data equals the vector's, within its tolerance"),
        *("Stimulus", "it ran", "Expected", "one", "Got", "two"),
        *("Operations", "ADD on CpuRefMUL on CpuRef"),
    ]


@needs_chromium
def test_click_expands_a_result(tmp_path: Path) -> None:
    page = open_page(tmp_path, "#suite=basic", then="document.querySelector('summary').click()")
    assert page.details == [
        "Check",
        "BASIC-01: the device exists and responds",
        "Reason",
        "silent",
        "Also broken",
        "COM-02",
    ]


@needs_chromium
@pytest.mark.parametrize(
    ("act", "names"),
    [
        ("document.querySelector('[data-status=skipped]').click()", ["dynamic"]),
        ("form.text.value = 'UNABLE'; form.dispatchEvent(new Event('input'))", ["unable"]),
        ("form.operation.value = 'MUL'; form.dispatchEvent(new Event('input'))", ["wrong"]),
        ("document.querySelector('.by-operation a.failed[href*=ADD]').click()", ["wrong"]),
        ("document.querySelector('.by-check a').click()", ["BASIC-01 the device"]),
        ("document.querySelector('.by-backend a.unsupported').click()", ["fenced"]),
    ],
)
def test_controls_and_links_filter(tmp_path: Path, act: str, names: list[str]) -> None:
    page = open_page(tmp_path, then=f"const form = document.getElementById('filters'); {act}")
    assert page.names == names


@needs_chromium
def test_filters_are_cleared(tmp_path: Path) -> None:
    page = open_page(tmp_path, "#status=failed&text=x", then="document.getElementById('clear').click()")
    assert len(page.names) == len(RESULTS)


@needs_chromium
def test_controls_update_the_address(tmp_path: Path) -> None:
    act = "document.querySelector('[data-status=failed]').click(); document.title = location.hash"
    assert open_page(tmp_path, "#suite=basic", then=act).title == "#status=failed&suite=basic"


@needs_chromium
def test_names_and_reasons_are_escaped(tmp_path: Path) -> None:
    hostile = result(HOSTILE, FAILED, HOSTILE, [HOSTILE], check=HOSTILE, stimulus=HOSTILE, expected="", got=HOSTILE)
    page = open_page(tmp_path, "#expand=1", results=[hostile], then="document.querySelector('.by-suite a').click()")
    assert page.title == "1 failed of 1 – conformance of localhost:1"
    assert page.names == [HOSTILE]
    assert page.details[3] == HOSTILE
    assert page.texts["count"] == "All 1 results"


@pytest.mark.slow
@needs_chromium
def test_many_results_are_listed_in_chunks(tmp_path: Path) -> None:
    many = [result(f"case {i}", PASSED, "generated", ["ADD"], types=["TENSOR_FLOAT32"] * 50) for i in range(4_000)]
    page = open_page(tmp_path, results=many)
    assert page.texts["count"] == "All 4,000 results"
    assert 50 < len(page.names) < 300
    assert (tmp_path / "report.html").stat().st_size < 800_000
    more = open_page(tmp_path, results=many, then="document.getElementById('more').click()")
    assert len(more.names) == len(page.names) + 100
    assert open_page(tmp_path, "#text=case+3999", results=many).names == ["case 3999"]


@needs_chromium
def test_light_and_dark_scheme_and_narrow_window(tmp_path: Path) -> None:
    # A headless window is at least 500 pixels wide.
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
        run_chromium(tmp_path, tmp_path / "report.html", "#expand=1", *look)
        with Image.open(shot) as image:
            brightness.append(ImageStat.Stat(image.convert("L")).mean[0])
    assert brightness[0] > 200
    assert brightness[1] < 60


def test_page_names_the_device_and_the_share_of_each_backend(tmp_path: Path) -> None:
    write_html(tmp_path / "report.html", INFO, RESULTS)
    text = (tmp_path / "report.html").read_text()
    about = "device nnhal-cpu of localhost:1, nnhal/0.1 Npu/2, checked by nnhal 0.1, in a checkout of abcdef · "
    assert about in text
    assert "<small>version 2, ran 0 of 3 operations</small>" in text
    assert "<small>version 1, ran 3 of 3 operations: ADD, CONV_2D, MUL</small>" in text


def test_page_counts_operations_by_path(tmp_path: Path) -> None:
    write_html(tmp_path / "report.html", INFO, RESULTS_ON_PATHS)
    text = (tmp_path / "report.html").read_text()
    assert "<small>version 2, ran 2 of 3 operations: ADD, MUL; by path: SYNC 2, BURST 1</small>" in text


def test_page_loads_no_resources(tmp_path: Path) -> None:
    write_html(tmp_path / "report.html", INFO, RESULTS)
    text = (tmp_path / "report.html").read_text()
    assert not re.search(r"https?:|\bsrc=|<link|@import|url\(", text)


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        (RESULTS, "3 of 6 checks failed"),
        (RESULTS[:1], "All 1 checks passed"),
        ([RESULTS[0], RESULTS[3]], "No check failed; 1 of 2 passed"),
        ([], "No check ran"),
    ],
)
def test_heading_sums_up(tmp_path: Path, results: list[Result], verdict: str) -> None:
    write_html(tmp_path / "report.html", INFO, results)
    assert f">{verdict}</h1>" in (tmp_path / "report.html").read_text()
