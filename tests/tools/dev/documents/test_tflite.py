"""The page of TFLite's operators: it has all of them, and rows agree with the code. CI checks that it is fresh."""

import pytest

pytest.importorskip("ai_edge_litert")

from tools.dev.documents.markdown import ROOT
from tools.dev.documents.tflite import CODES, DOCUMENT, describe_operator, render_page


def cells(name: str) -> list[str]:
    """Return the cells of an operator's row in the document."""
    lines = [line for line in (ROOT / DOCUMENT).read_text().splitlines() if line.startswith(f"| {name} |")]
    assert len(lines) == 1, name
    return [cell.strip() for cell in lines[0].strip("|").split(" | ")]


def test_page_has_every_operator_with_an_outcome() -> None:
    for name in CODES:
        assert cells(name)[1], name


@pytest.mark.parametrize(
    "name", ["CEIL", "CUMSUM", "SQUARE", "SHAPE", "UNIQUE", "VAR_HANDLE", "DENSIFY", "CALL", "CUSTOM"]
)
def test_rows_of_the_page_are_fresh(name: str) -> None:
    row = render_page({name: describe_operator(name)}).splitlines()[-1]
    assert row in (ROOT / DOCUMENT).read_text().splitlines()


def test_outcomes_come_from_the_code() -> None:
    ceil = describe_operator("CEIL")
    assert list(ceil.outcomes) == ["composed", "folded", "extension"] and ceil.operations == ["FLOOR", "NEG"]
    assert list(describe_operator("CUMSUM").outcomes) == ["extension"]
    assert "cumulative sums" in describe_operator("CUMSUM").note
    assert list(describe_operator("VAR_HANDLE").outcomes) == ["state"]
    assert list(describe_operator("CALL").outcomes) == ["refused"]
    assert "`TFLite_Detection_PostProcess`" in describe_operator("CUSTOM").note


def test_notes_do_not_repeat_names() -> None:
    assert describe_operator("RANK").note == ""
    assert describe_operator("CEIL").note == "CEIL to -floor(-x)."
    assert cells("CONV_2D")[3] == "The filter layout is OHWI in both formats."
