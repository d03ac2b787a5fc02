"""Totals of an explanation, with a placement, with a fallback and without."""

from dataclasses import replace
from pathlib import Path

from nnhal import tflite
from nnhal.client.fallback.placement import FallbackPlacement, OperationSide, PlacedPart
from nnhal.types import Refusal
from nnhal_tools.explain.explanation import build_explanation
from nnhal_tools.explain.imported import describe_import
from nnhal_tools.explain.model_explanation import ModelExplanation, become_text
from tests.tools.explain.models import explain_file, refused_file, varied_file


def test_totals_count_operators_and_operations(tmp_path: Path) -> None:
    explanation = explain_file(varied_file(tmp_path))
    assert explanation.placed is not None and not explanation.is_complete
    count = len(explanation.placed.operations)
    totals = explanation.as_json()["totals"]
    assert totals["operators"] == 7 and totals["regions"] == 1 and totals["outcomes"]["direct"] == 3
    assert totals["operations"] == count == sum(totals["backends"].values())
    assert totals["backends"] == {"CpuAcc": count - 2, "CpuRef": 1, "not supported": 1}
    assert explanation.summary() == [
        "7 operators: 3 direct, 1 composed, 1 folded, 1 unread, 1 extension in 1 region",
        f"{count} operations in 3 partitions: {count - 2} CpuAcc, 1 CpuRef, 1 not supported",
    ]


def test_missing_placement_has_a_reason(tmp_path: Path) -> None:
    imported = describe_import(tflite.inspect(refused_file(tmp_path)), None)
    explanation = ModelExplanation(imported, None, "no service")
    assert not explanation.is_complete
    assert explanation.summary() == [
        "3 operators: 1 direct, 2 refused",
        "cannot be imported: 2 operators are refused",
        "no placement: no service",
    ]
    shown = explanation.as_json()
    assert shown["missing"] == "no service" and shown["operations"] == [] and len(shown["import"]["operators"]) == 3


def test_operators_of_this_machine_are_counted(tmp_path: Path) -> None:
    path = varied_file(tmp_path)
    model = tflite.load(path)
    region = next(i for i, name in enumerate(model.operation_names) if name.startswith("region"))
    operations = tuple(
        OperationSide(0, i, operation.type, "CpuAcc", (Refusal("npu", "no"),) * (i == region), i == region)
        for i, operation in enumerate(model.main.operations)
    )
    placement = FallbackPlacement((), operations, (PlacedPart((region,), is_fallback=True),), 128, "128 bytes cross")
    explanation = ModelExplanation(describe_import(tflite.inspect(path), model), build_explanation(model, placement))
    assert explanation.is_complete
    shown = explanation.as_json()
    assert shown["totals"]["fallback_operators"] == shown["totals"]["fallback_operations"] == 1
    assert shown["totals"]["backends"] == {"CpuAcc": len(operations) - 1, "CpuAcc (this machine)": 1}
    assert shown["fallback"]["parts"] == [{"operations": [region], "is_fallback": True}]
    assert shown["fallback"]["crossing_bytes"] == 128
    assert explanation.summary()[-1] == "1 operator on this machine: 128 bytes cross"
    assert shown["operations"][region]["type"] == "SUBMODEL of org.nnhal.litert"
    assert shown["operations"][region]["inputs"][0].startswith("SUBMODEL_BYTES [")


def test_failed_run_keeps_the_placement(tmp_path: Path) -> None:
    explanation = replace(explain_file(varied_file(tmp_path)), missing="it crashed")
    assert explanation.summary()[-1] == "no times: it crashed"


def test_operations_of_an_operator_are_told() -> None:
    row = {"outcome": "composed", "types": ["SPLIT", "RESHAPE", "RESHAPE"], "operations": [3, 4, 5]}
    assert become_text(row) == "SPLIT, 2 RESHAPE (operations 3, 4, 5)"
    assert become_text({"outcome": "extension", "types": [], "operations": [7]}) == "region (operation 7)"
    assert become_text({"outcome": "folded", "types": [], "operations": []}) == ""
