"""The explanation and its page, opened in headless Chromium: colours, reasons, and nothing that escapes."""

from dataclasses import replace
from pathlib import Path

from nnhal.types import Model, OperationPlacement, Partition, Placement, Refusal, Span, SpanKind
from tests.tools.conformance.test_report_page import chromium, opened
from tests.tools.test_cli import DIGITS
from tools.cli.model import load
from tools.explain.explanation import Explanation, add_times, explanation
from tools.explain.page import page

HOSTILE = "</script><script>document.title='broken'</script><b>"


def explained(model: Model) -> Explanation:
    """Operation 1 on CpuRef, the last nowhere, all others on CpuAcc."""
    last = len(model.main.operations) - 1
    refusals = {1: (Refusal("CpuAcc", HOSTILE, "rank 4"),), last: (Refusal("CpuAcc", "no"), Refusal("CpuRef", "never"))}
    backends = {1: "CpuRef", last: ""}
    operations = tuple(
        OperationPlacement(0, i, operation.type, backends.get(i, "CpuAcc"), refusals.get(i, ()))
        for i, operation in enumerate(model.main.operations)
    )
    partitions = (
        Partition(0, "CpuAcc", (0,)),
        Partition(0, "CpuRef", (1,)),
        Partition(0, "CpuAcc", tuple(range(2, last))),
    )
    return explanation(model, Placement(partitions, operations))


def test_rows_say_where_and_why() -> None:
    found = explained(load(DIGITS))
    assert not found.is_complete
    assert found.operations[1]["refusals"] == [{"backend": "CpuAcc", "reason": HOSTILE, "nearest": "rank 4"}]
    assert [row["partition"] for row in found.operations] == [0, 1, 2, 2, 2, 2, None]
    assert found.partitions[2]["types"] == {"CONV_2D": 1, "AVERAGE_POOL_2D": 1, "RESHAPE": 1, "FULLY_CONNECTED": 1}


def test_times_of_operations_and_partitions() -> None:
    found = explained(load(DIGITS))
    add_times(
        found,
        [
            Span(SpanKind.PARTITION, "CpuAcc", "CpuAcc", 0, (0,), 0, 1000),
            Span(SpanKind.PARTITION, "CpuRef", "CpuRef", 0, (1,), 0, 2000),
            Span(SpanKind.OPERATION, "CONV_2D", "CpuAcc", 0, (2,), 0, 500),
            Span(SpanKind.PARTITION, "CpuAcc", "CpuAcc", 0, (2, 3, 4, 5), 0, 1000),
            Span(SpanKind.PARTITION, "CpuRef", "CpuRef", 1, (0,), 0, 9000),
        ],
    )
    assert [row["share"] for row in found.partitions] == [0.25, 0.5, 0.25]
    assert [row.get("time_us") for row in found.operations] == [1, 2, 0.5, None, None, None, None]


def test_a_model_without_names_has_no_origins() -> None:
    found = explained(replace(load(DIGITS), operation_names=()))
    assert {row["origin"] for row in found.operations} == {""}


@opened
def test_a_click_shows_what_is_known_of_an_operation(tmp_path: Path) -> None:
    model = load(DIGITS)
    text = page(HOSTILE, model, explained(model))
    click = 'document.querySelector("svg g[data-operation=\\"1\\"]").dispatchEvent(new MouseEvent("click"));'
    file = tmp_path / "graph.html"
    file.write_text(text + f"<script>{click}</script>")
    shown = chromium(tmp_path, file, "", "--dump-dom").decode()
    assert "<title>broken</title>" not in shown
    aside = shown[shown.index("<aside") : shown.index("</aside>")]
    assert "1 DEPTHWISE_CONV_2D" in aside and "CpuRef, partition 1" in aside
    assert "CpuAcc does not take it" in aside and "&lt;/script&gt;" in aside and "rank 4" in aside
    assert shown.count('class="backend0" x=') == 5 and shown.count('class="backend1" x=') == 1
    assert shown.count('class="nobody" x=') == 1 and "not supported (1)" in shown
    assert shown.count("<path d=") == len(model.main.operations) - 1
