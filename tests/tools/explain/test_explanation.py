"""Rows of an explanation: placements, reasons and times."""

from dataclasses import replace

from nnhal.types import Span, SpanKind
from nnhal_tools.cli.model import load_model
from nnhal_tools.explain.explanation import add_times
from tests.tools.cli.command import DIGITS
from tests.tools.explain.models import HOSTILE, explain


def test_rows_have_placements_and_reasons() -> None:
    explanation = explain(load_model(DIGITS))
    assert not explanation.is_complete
    assert explanation.operations[1]["refusals"] == [{"backend": "CpuAcc", "reason": HOSTILE, "nearest": "rank 4"}]
    assert [row["partition"] for row in explanation.operations] == [0, 1, 2, 2, None]
    assert explanation.partitions[2]["types"] == {"FULLY_CONNECTED": 2}


def test_times_of_operations_and_partitions() -> None:
    explanation = explain(load_model(DIGITS))
    add_times(
        explanation,
        [
            Span(SpanKind.PARTITION, "CpuAcc", "CpuAcc", 0, (0,), 0, 1000),
            Span(SpanKind.PARTITION, "CpuRef", "CpuRef", 0, (1,), 0, 2000),
            Span(SpanKind.OPERATION, "FULLY_CONNECTED", "CpuAcc", 0, (2,), 0, 500),
            Span(SpanKind.PARTITION, "CpuAcc", "CpuAcc", 0, (2, 3), 0, 1000),
            Span(SpanKind.PARTITION, "CpuRef", "CpuRef", 1, (0,), 0, 9000),
        ],
    )
    assert [row["share"] for row in explanation.partitions] == [0.25, 0.5, 0.25]
    assert [row.get("time_us") for row in explanation.operations] == [1, 2, 0.5, None, None]


def test_model_without_names_has_no_origins() -> None:
    explanation = explain(replace(load_model(DIGITS), operation_names=()))
    assert {row["origin"] for row in explanation.operations} == {""}
