"""The page of an explanation, opened in headless Chromium: colors, reasons, and escaped text."""

from pathlib import Path

from nnhal_tools.cli.model import load_model
from nnhal_tools.explain.page import render_page
from tests.tools.browser import needs_chromium, run_chromium
from tests.tools.cli.command import DIGITS
from tests.tools.explain.models import HOSTILE, explain


@needs_chromium
def test_click_shows_the_details_of_an_operation(tmp_path: Path) -> None:
    model = load_model(DIGITS)
    text = render_page(HOSTILE, model, explain(model))
    click = 'document.querySelector("svg g[data-operation=\\"1\\"]").dispatchEvent(new MouseEvent("click"));'
    file = tmp_path / "graph.html"
    file.write_text(text + f"<script>{click}</script>")
    shown = run_chromium(tmp_path, file, "", "--dump-dom").decode()
    assert "<title>broken</title>" not in shown
    aside = shown[shown.index("<aside") : shown.index("</aside>")]
    assert "1 FULLY_CONNECTED" in aside and "CpuRef, partition 1" in aside
    assert "CpuAcc does not support it" in aside and "&lt;/script&gt;" in aside and "rank 4" in aside
    assert shown.count('class="backend0" x=') == 3 and shown.count('class="backend1" x=') == 1
    assert shown.count('class="unsupported" x=') == 1 and "not supported (1)" in shown
    assert shown.count("<path d=") == len(model.main.operations) - 1


def test_text_of_the_model_is_escaped() -> None:
    model = load_model(DIGITS)
    text = render_page(HOSTILE, model, explain(model))
    assert "document.title='broken'" not in text
    assert text.count("</script>") == 2  # those of the page itself
