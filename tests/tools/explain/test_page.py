"""The page of an explanation, opened in headless Chromium: colors, reasons, tensors, and escaped text."""

from pathlib import Path

from nnhal import tflite
from nnhal_tools.explain.imported import describe_import
from nnhal_tools.explain.model_explanation import ModelExplanation
from nnhal_tools.explain.page import render_page
from tests.tools.browser import needs_chromium, run_chromium
from tests.tools.cli.command import DIGITS
from tests.tools.explain.models import HOSTILE, explain_file, refused_file, varied_file


def shown_after_click(folder: Path, text: str, node: int) -> str:
    """Return the page in Chromium after a click on a node."""
    click = f'document.querySelector("svg g[data-node=\\"{node}\\"]").dispatchEvent(new MouseEvent("click"));'
    file = folder / "graph.html"
    file.write_text(text + f"<script>{click}</script>")
    return run_chromium(folder, file, "", "--dump-dom").decode()


def details(shown: str) -> str:
    return shown[shown.index("<aside") : shown.index("</aside>")]


@needs_chromium
def test_click_shows_the_details_of_an_operation(tmp_path: Path) -> None:
    model = tflite.load(DIGITS)
    shown = shown_after_click(tmp_path, render_page(HOSTILE, model, explain_file(DIGITS)), 1)
    assert "<title>broken</title>" not in shown
    aside = details(shown)
    assert "1 FULLY_CONNECTED" in aside and "CpuRef, partition 1" in aside
    assert "CpuAcc does not support it" in aside and "&lt;/script&gt;" in aside and "rank 4" in aside
    assert "fused_activation_function = RELU" in aside and "outcome of the import" in aside
    assert shown.count('class="backend0" x=') == 3 and shown.count('class="backend1" x=') == 1
    assert shown.count('class="unsupported" x=') == 1 and "not supported (1)" in shown
    assert shown.count("<path d=") == len(model.main.operations) - 1


@needs_chromium
def test_file_that_cannot_be_imported_has_a_graph_of_operators(tmp_path: Path) -> None:
    imported = describe_import(tflite.inspect(refused_file(tmp_path)), None)
    explanation = ModelExplanation(imported, None, "the model cannot be imported")
    shown = shown_after_click(tmp_path, render_page("refused", None, explanation), 2)
    assert "is not part of LiteRT" in details(shown) and "2 CUSTOM" in details(shown)
    assert "direct (1)" in shown and "refused (2)" in shown and shown.count("<path d=") == 2
    assert "no placement: the model cannot be imported" in shown and "<title>broken</title>" not in shown


def test_page_has_tensors_options_and_reasons(tmp_path: Path) -> None:
    path = varied_file(tmp_path)
    text = render_page("varied", tflite.load(path), explain_file(path))
    assert "image: INT8 [1, 4, 4, 1], scale 0.5, zero point 3" in text
    assert "stride_w = 1" in text and "SUBMODEL of org.nnhal.litert" in text
    table = text[text.index("<tbody>") : text.index("</tbody>")]
    assert table.count("<tr class=") == 7 and "cumulative sums" in table and "nothing reads its result" in table


def test_text_of_the_model_is_escaped(tmp_path: Path) -> None:
    for path in (varied_file(tmp_path), DIGITS):
        text = render_page(HOSTILE, tflite.load(path), explain_file(path))
        assert "document.title='broken'" not in text
        assert text.count("</script>") == 2  # those of the page itself
