"""Rows of an import: outcomes, reasons, tensors, options, and groups of similar operators."""

from dataclasses import replace
from pathlib import Path

from nnhal import tflite
from nnhal_tools.explain.imported import describe_import, group_operators, number_ranges, short_origin, tensor_text
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options
from tests.tools.explain.models import HOSTILE, refused_file, varied_file


def test_rows_have_outcomes_operations_and_reasons(tmp_path: Path) -> None:
    path = varied_file(tmp_path)
    model = tflite.load(path)
    imported = describe_import(tflite.inspect(path), model)
    assert imported.totals == {"direct": 3, "composed": 1, "folded": 1, "unread": 1, "extension": 1}
    assert (imported.regions, imported.problem) == (1, "")
    assert [row["outcome"] for row in imported.others] == ["folded", "unread", "composed", "extension"]
    by_name = {row["name"]: row for row in imported.operators}
    assert by_name["CONV_2D"]["operations"] == [1] and by_name["CONV_2D"]["types"] == ["CONV_2D"]
    ceil = by_name["CEIL"]
    assert [model.operation_names[i] for i in ceil["operations"]] == ["operator 4 (CEIL)"] * len(ceil["types"])
    assert [model.operation_names[i] for i in by_name["CUMSUM"]["operations"]] == ["region of operator 5 (CUMSUM)"]
    assert "cumulative sums" in by_name["CUMSUM"]["reason"]
    assert by_name["NEG"]["reason"] == "removed: nothing reads its result"


def test_rows_have_tensors_and_options(tmp_path: Path) -> None:
    path = varied_file(tmp_path)
    imported = describe_import(tflite.inspect(path), None)
    (image,) = imported.inputs
    assert tensor_text(image) == "image: INT8 [1, 4, 4, 1], scale 0.5, zero point 3"
    assert [row["name"] for row in imported.outputs] == [HOSTILE]
    options = imported.operators[2]["options"]
    assert (options["padding"], options["stride_w"], options["fused_activation_function"]) == ("SAME", 1, "RELU")
    assert options["dilation_w_factor"] == 1
    assert [row["constant"] for row in imported.operators[2]["inputs"]] == [False, True, True]


def test_refused_operators_are_listed(tmp_path: Path) -> None:
    imported = describe_import(tflite.inspect(refused_file(tmp_path)), None)
    assert imported.totals == {"direct": 1, "refused": 2} and imported.problem == "2 operators are refused"
    assert [row["operator"] for row in imported.others] == [0, 2]
    assert "'Mystery' is not part of LiteRT" in imported.others[0]["reason"]


def test_quantization_of_several_channels_is_summarized(tmp_path: Path) -> None:
    report = tflite.inspect(varied_file(tmp_path))
    tensors = list(report.graph.tensors)
    index = report.graph.inputs[0]
    tensors[index] = replace(tensors[index], scales=(0.25, 0.5), zero_points=(0, 0), quantized_dimension=3)
    (image,) = describe_import(replace(report, graph=replace(report.graph, tensors=tensors)), None).inputs
    assert tensor_text(image) == "image: INT8 [1, 4, 4, 1], 2 scales from 0.25 to 0.5 along axis 3, zero point 0"


def test_similar_operators_share_a_row() -> None:
    row = {"name": "PAD", "outcome": "folded", "types": [], "reason": "", "operator": 1}
    rows = [row, {**row, "operator": 2}, {**row, "operator": 5}, {**row, "name": "ADD", "operator": None}]
    assert [(group["name"], group["numbers"], group["count"]) for group in group_operators(rows)] == [
        ("PAD", "1-2, 5", 3),
        ("ADD", "added", 1),
    ]
    assert number_ranges([3, 0, 1, 2, 9]) == "0-3, 9" and number_ranges([]) == ""


def test_origins_of_large_regions_are_short() -> None:
    assert short_origin("operator 0 (ADD)") == "operator 0 (ADD)"
    assert short_origin("region of operator 1 (CUMSUM)") == "region of operator 1 (CUMSUM)"
    assert short_origin("region of operator 1 (A), operator 2 (B), operator 9 (A)") == "region of operators 1-2, 9"


def test_types_and_shapes_that_clients_get_are_shown(tmp_path: Path) -> None:
    values, mask = Tensor((1, 8), name="values"), Tensor((2, 2), "BOOL", name="mask")
    largest = Op("ARG_MAX", [values, ints(1)], [Tensor((1,), "INT64", name="largest")], options("ArgMax", outputType=4))
    found = Op("WHERE", [mask], [Tensor((0, 2), "INT64", name="found", more={"shapeSignature": [-1, 2]})])
    (tmp_path / "m.tflite").write_bytes(build(largest, found, outputs=[largest.outputs[0], found.outputs[0]]))
    path = tmp_path / "m.tflite"
    imported = describe_import(tflite.inspect(path), tflite.load(path))
    first, second = map(tensor_text, imported.outputs)
    assert first == "largest: INT64 [1], int32 for clients"
    assert second.startswith("found: INT64 ") and second.endswith("; warning: the shape is known only at run time")
    assert [tensor_text(row) for row in imported.inputs] == ["values: FLOAT32 [1, 8]", "mask: BOOL [2, 2]"]
