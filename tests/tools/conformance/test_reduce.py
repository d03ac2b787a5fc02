"""Reduction of failing vectors: the simplifications, their limits, and the correctness of the reduced vector."""

import base64
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhal.recording.tensor_difference import first_difference
from nnhal.types import AnyArray
from nnhal.wire import to_model
from nnhal_tools.conformance import reduce as reduction
from nnhal_tools.conformance.reduce import reduce_case, write_case
from nnhal_tools.conformance.vectors.case import Case, read_cases
from tests.driver.one_operation import execute, prepare
from tests.shared import shared

Json = dict[str, Any]

A = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
B = np.array([[7, 8, 9], [10, 11, 12]], np.float32)
ZERO, NONE = np.zeros(1, np.float32), np.array(0, np.int32)


def data(array: AnyArray) -> Json:
    return {"dimensions": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


def expected(array: AnyArray, *, ignored: bool = False) -> Json:
    return data(array) | {"ignored": ignored, "atol": 1e-5, "rtol": 1e-6}


def operand(lifetime: str, shape: AnyArray | None = None, type_: str = "TENSOR_FLOAT32", **more: object) -> Json:
    dimensions = [] if shape is None else list(shape.shape)
    return {"type": type_, "dimensions": dimensions, "scale": 0.0, "zero_point": 0, "lifetime": lifetime, **more}


def constant(array: AnyArray) -> Json:
    type_ = "TENSOR_FLOAT32" if array.ndim else "INT32"
    return operand("CONSTANT_COPY", array, type_, data=data(array)["data"])


def operation(type_: str, inputs: list[int], *outputs: int) -> Json:
    return {"type": type_, "inputs": inputs, "outputs": list(outputs)}


def graph(operands: list[Json], operations: list[Json]) -> Json:
    lists = {
        key: [i for i, o in enumerate(operands) if o["lifetime"] == lifetime]
        for key, lifetime in (("inputs", "SUBGRAPH_INPUT"), ("outputs", "SUBGRAPH_OUTPUT"))
    }
    return {"operands": operands, "operations": operations, **lists}


def case_of(main: Json, inputs: list[Json | None], outputs: list[Json], *referenced: Json, **more: object) -> Case:
    known = {"name": "made", "spec": "made/made", "folder": "made", "feature_level": "1.3"}
    model = {"main": main, "referenced": list(referenced)}
    flags = {"expect_failure": False, "relaxed": False}
    return Case(known | flags | {"model": model, "inputs": inputs, "outputs": outputs} | more)


def several() -> Case:
    """Five operations: RELU -> ADD of zero -> MUL -> output 0 -> TANH -> output 1; LOGISTIC -> output 2."""
    product = np.maximum(A, 0) * B
    return case_of(
        graph(
            [
                operand("SUBGRAPH_INPUT", A),
                operand("SUBGRAPH_INPUT", B),
                constant(ZERO),
                constant(NONE),
                operand("TEMPORARY_VARIABLE", A),
                operand("TEMPORARY_VARIABLE", A),
                operand("SUBGRAPH_OUTPUT", A),
                operand("SUBGRAPH_OUTPUT", A),
                operand("SUBGRAPH_OUTPUT", A),
            ],
            [
                operation("RELU", [0], 4),
                operation("ADD", [4, 2, 3], 5),
                operation("MUL", [5, 1, 3], 6),
                operation("TANH", [6], 7),
                operation("LOGISTIC", [1], 8),
            ],
        ),
        [data(A), data(B)],
        [expected(product), expected(np.tanh(product)), expected(1 / (1 + np.exp(-B)))],
    )


def difference(case: Case) -> object:
    """Return the difference between the reference device and a case, or None."""
    _, arrays = execute(prepare(to_model(case.model())), case.inputs)
    for expected_output, actual in zip(case.outputs, arrays, strict=True):
        if expected_output.array.shape != actual.shape:
            return f"shape {actual.shape}, expected {expected_output.array.shape}"
        tolerance = (expected_output.atol, expected_output.rtol)
        if first := first_difference(expected_output.type, actual, expected_output.array, tolerance):
            return first
    return None


def operand_names(case: Case) -> list[str]:
    return [o["lifetime"] for o in case.data["model"]["main"]["operands"]]


def test_operation_reads_the_known_output_of_another() -> None:
    small = reduce_case(several(), lambda case: "TANH" in case.operations)
    product = np.maximum(A, 0) * B
    assert small.operations == ("TANH",)
    assert [array.tolist() for array in small.inputs if array is not None] == [product[:1].tolist()]
    np.testing.assert_array_equal(small.outputs[0].array, np.tanh(product[:1]))
    assert operand_names(small) == ["SUBGRAPH_OUTPUT", "SUBGRAPH_INPUT"]
    assert difference(small) is None


def test_dependent_operations_stay_with_constant_inputs() -> None:
    small = reduce_case(several(), lambda case: {"RELU", "MUL"} <= set(case.operations))
    assert small.operations == ("RELU", "MUL")
    assert operand_names(small).count("SUBGRAPH_INPUT") == len(small.inputs) == 1
    assert operand_names(small).count("CONSTANT_COPY") == 2  # B, and MUL's activation
    assert small.data["model"]["main"]["operands"][0]["dimensions"] == [1, 3]
    assert difference(small) is None


def test_failing_add_of_zero_stays() -> None:
    small = reduce_case(several(), lambda case: "ADD" in case.operations)
    assert small.operations == ("RELU", "ADD", "MUL")  # RELU's output is not known, and so cannot be an input


@pytest.mark.parametrize("index", [2, 3])
def test_add_of_nonzero_or_with_activation_stays(index: int) -> None:
    case = several()
    operands = case.data["model"]["main"]["operands"]
    operands[index] = constant(np.ones_like(NONE if index == 3 else ZERO))
    small = reduce_case(case, lambda case: "MUL" in case.operations)
    assert small.operations == ("RELU", "ADD", "MUL")


def test_broadcasting_add_stays() -> None:
    shapes = [operand("SUBGRAPH_INPUT", A[:1]), constant(np.zeros_like(A)), constant(NONE)]
    shapes += [operand("TEMPORARY_VARIABLE", A), operand("SUBGRAPH_OUTPUT", A)]
    operations = [operation("ADD", [0, 1, 2], 3), operation("SOFTMAX", [3, 2], 4)]
    case = case_of(graph(shapes, operations), [data(A[:1])], [expected(A)])
    assert reduce_case(case, lambda case: True).operations == ("ADD", "SOFTMAX")


def test_unneeded_operation_is_removed() -> None:
    operands = [operand("SUBGRAPH_INPUT", A), constant(NONE), operand("SUBGRAPH_OUTPUT", A)]
    operands += [operand("TEMPORARY_VARIABLE", A)]
    operations = [operation("RELU", [0], 3), operation("SOFTMAX", [0, 1], 2)]
    small = reduce_case(case_of(graph(operands, operations), [data(A)], [expected(A)]), lambda case: True)
    assert small.operations == ("SOFTMAX",)
    assert len(small.data["model"]["main"]["operands"]) == 3


def test_outputs_that_fail_together_stay() -> None:
    small = reduce_case(several(), lambda case: {"MUL", "LOGISTIC"} <= set(case.operations))
    assert small.operations == ("RELU", "MUL", "LOGISTIC")
    assert len(small.outputs) == 2
    assert difference(small) is None


def test_reduced_case_cannot_be_reduced_further() -> None:
    def fails(case: Case) -> bool:
        return {"RELU", "LOGISTIC"} <= set(case.operations)

    small = reduce_case(several(), fails)
    assert reduce_case(small, fails) is small


def test_failing_row_stays() -> None:
    small = reduce_case(several(), lambda case: "LOGISTIC" in case.operations and 12 in np.asarray(case.inputs[0]))
    assert small.operations == ("LOGISTIC",)
    assert [array.tolist() for array in small.inputs if array is not None] == [B[1:].tolist()]
    assert difference(small) is None


@pytest.mark.parametrize(
    "spec",
    [
        "V1_2/bbox_graph",
        "V1_2/concat_zero_sized",
        "V1_2/l2_pool_v1_2",
        "V1_2/conv2d_per_channel",
        "V1_3/if_simple",
        "V1_3_cts_only/while_fib_unknown_dimension",
        "V1_3/elu",
    ],
)
def test_correct_device_passes_every_candidate(spec: str) -> None:
    def fails(case: Case) -> bool:
        assert difference(case) is None, case.name
        return True

    cases = [case for case in read_cases(shared("vectors") / Path(spec).parent) if case.spec == spec]
    assert cases
    for case in cases[:6]:
        small = reduce_case(case, fails)
        assert len(small.inputs) == len(small.outputs) == 1
        assert len(small.operations) <= len(case.operations)


@pytest.mark.parametrize(
    ("first", "second"), [(operation("SOFTMAX", [0, 1], 2), A), (operation("ADD", [0, 1, 3], 2), A[0])]
)
def test_batch_is_reduced_only_if_rows_are_independent(first: Json, second: AnyArray) -> None:
    operands = [operand("SUBGRAPH_INPUT", A), constant(second), operand("SUBGRAPH_OUTPUT", A), constant(NONE)]
    case = case_of(graph(operands, [first]), [data(A)], [expected(A)])
    small = reduce_case(case, lambda case: True)
    rows = small.data["model"]["main"]["operands"][0]["dimensions"][0]
    assert rows == (2 if first["type"] == "SOFTMAX" else 1)
    constants = [o["dimensions"] for o in small.data["model"]["main"]["operands"] if "data" in o]
    assert list(second.shape) in constants


def test_batch_stays_if_an_operand_is_also_used_without_batch() -> None:
    square = np.arange(4, dtype=np.float32).reshape(2, 2)
    operands = [operand("SUBGRAPH_INPUT", square[0]), operand("TEMPORARY_VARIABLE", square[0])]
    operands += [operand("SUBGRAPH_INPUT", square), constant(NONE), operand("SUBGRAPH_OUTPUT", square)]
    operations = [operation("RELU", [0], 1), operation("ADD", [2, 1, 3], 4)]
    case = case_of(graph(operands, operations), [data(square[0]), data(square)], [expected(square + square[0])])
    small = reduce_case(case, lambda case: "RELU" in case.operations)
    assert [list(e.array.shape) for e in small.outputs] == [[2, 2]]
    assert difference(small) is None


def test_batch_with_scales_for_each_row_stays() -> None:
    per_channel = operand("SUBGRAPH_INPUT", A, "TENSOR_QUANT8_SYMM_PER_CHANNEL")
    per_channel["channel_quant"] = {"scales": [1.0, 2.0], "channel_dim": 0}
    operands = [per_channel, operand("SUBGRAPH_OUTPUT", A)]
    main = graph(operands, [operation("DEQUANTIZE", [0], 1)])
    case = case_of(main, [data(A.astype(np.int8))], [expected(A * [[1], [2]])])
    assert reduce_case(case, lambda case: True) is case


@pytest.mark.parametrize("unknown", [{"ignored": True}, {"dimensions": [0, 3], "data": ""}])
def test_ignored_or_empty_output_is_not_a_known_value(unknown: Json) -> None:
    case = several()
    case.data["outputs"][0] |= unknown
    small = reduce_case(case, lambda case: "TANH" in case.operations)
    assert small.operations == ("RELU", "MUL", "TANH")


def test_omitted_input_becomes_an_omitted_operand() -> None:
    operands = [operand("SUBGRAPH_INPUT", A), operand("SUBGRAPH_INPUT"), operand("SUBGRAPH_OUTPUT", A)]
    case = case_of(graph(operands, [operation("SVDF", [0, 1], 2)]), [data(A), None], [expected(A)])
    small = reduce_case(case, lambda case: True)
    assert operand_names(small) == ["SUBGRAPH_INPUT", "NO_VALUE", "SUBGRAPH_OUTPUT"]
    assert len(small.data["inputs"]) == 1


def test_unreferenced_subgraphs_are_removed() -> None:
    branch = graph([operand("SUBGRAPH_INPUT", A), operand("SUBGRAPH_OUTPUT", A)], [operation("RELU", [0], 1)])
    choice = [
        operand("SUBGRAPH_INPUT", None, "BOOL"),
        operand("SUBGRAPH", None, "SUBGRAPH", subgraph=1),
        operand("SUBGRAPH_INPUT", A),
        operand("SUBGRAPH_OUTPUT", A),
    ]
    nested = graph(choice, [operation("IF", [0, 1, 1, 2], 3)])
    operands = [
        operand("SUBGRAPH_INPUT", A),
        operand("SUBGRAPH", None, "SUBGRAPH", subgraph=0),
        operand("SUBGRAPH", None, "SUBGRAPH", subgraph=2),
        constant(NONE) | {"type": "BOOL", "data": "AQ=="},
        operand("SUBGRAPH_OUTPUT", A),
        operand("SUBGRAPH_OUTPUT", A),
    ]
    operations = [operation("IF", [3, 1, 1, 0], 4), operation("IF", [3, 2, 2, 3, 0], 5)]
    outputs = [expected(np.maximum(A, 0))] * 2
    tanh = graph([operand("SUBGRAPH_INPUT", A), operand("SUBGRAPH_OUTPUT", A)], [operation("TANH", [0], 1)])
    case = case_of(graph(operands, operations), [data(A)], outputs, tanh, branch, nested)

    small = reduce_case(case, lambda case: len(case.data["model"]["referenced"]) >= 2 and "TANH" not in case.operations)
    assert small.operations == ("IF", "RELU", "IF")
    assert [o["subgraph"] for o in small.data["model"]["main"]["operands"] if "subgraph" in o] == [1]
    assert [o["subgraph"] for o in small.data["model"]["referenced"][1]["operands"] if "subgraph" in o] == [0]


def test_irreducible_case_is_returned_unchanged() -> None:
    case = several()
    assert reduce_case(case, lambda case: False) is case
    for more in ({"expect_failure": True}, {"multinomial_tolerance": 0.1}):
        special = Case(case.data | more)
        assert reduce_case(special, lambda case: True) is special


def test_reduction_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    monkeypatch.setattr(reduction, "LIMIT_S", 3.0)
    tried: list[Case] = []
    reduce_case(several(), lambda case: bool(tried.append(case)))  # type: ignore[func-returns-value]
    assert len(tried) == 2


def test_written_case_can_be_read_and_still_fails(tmp_path: Path) -> None:
    def fails(case: Case) -> bool:
        return "TANH" in case.operations

    small = reduce_case(several(), fails)
    write_case(tmp_path / "small.jsonl.gz", small)
    [back] = read_cases(tmp_path)
    assert back == small
    assert (tmp_path / "small.jsonl.gz").read_bytes()[4:8] == bytes(4)  # no time, so that it is the same each time
    assert back.name == "made_reduced"
    assert fails(back)
    with pytest.raises(ValueError, match=r"small\.json"):
        write_case(tmp_path / "small.json", small)
