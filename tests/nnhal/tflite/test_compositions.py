"""Operators that become several NNAPI operations, and choices between operations."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from nnhal import tflite
from nnhal_driver.validation.model import validate_model
from tests.nnhal.tflite.build import Op, Tensor, arguments, build, ints, listing, options, quant, schema, value_of

RELU = schema.ActivationFunctionType.RELU
RELU1 = schema.ActivationFunctionType.RELU_N1_TO_1
RELU6 = schema.ActivationFunctionType.RELU6


def f(*shape: int) -> Tensor:
    return Tensor(shape)


def of(type_: str, *shape: int) -> Tensor:
    return Tensor(shape, type_)


def convert(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], table: Any = None) -> list[str]:
    """Return the operations of an operator. Temporaries are numbered from 0."""
    model = tflite.parse(build(Op(name, inputs, outputs, table)), extension=False)
    validate_model(model)
    numbers: dict[str, str] = {}
    return [
        re.sub(r"tmp\d+", lambda match: numbers.setdefault(match[0], f"tmp{len(numbers)}"), line)
        for line in listing(model)
    ]


# ---- Arithmetic -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "activation, expected",
    [
        (RELU, ["ADD in0 in1 0 -> tmp0", "MAXIMUM tmp0 [0] -> out0"]),
        (RELU1, ["ADD in0 in1 0 -> tmp0", "MAXIMUM tmp0 [-1] -> tmp1", "MINIMUM tmp1 [1] -> out0"]),
        (RELU6, ["ADD in0 in1 0 -> tmp0", "MAXIMUM tmp0 [0] -> tmp1", "MINIMUM tmp1 [6] -> out0"]),
    ],
)
def test_fused_activation_of_integers(activation: int, expected: list[str]) -> None:
    operands = [of("INT32", 2, 3), of("INT32", 3)]
    assert convert("ADD", operands, [of("INT32", 2, 3)], options("Add", fusedActivationFunction=activation)) == expected


@pytest.mark.parametrize(
    "name, type_, expected",
    [
        ("SQUARED_DIFFERENCE", "FLOAT32", ["SUB in0 in1 0 -> tmp0", "MUL tmp0 tmp0 0 -> out0"]),
        ("FLOOR_DIV", "FLOAT32", ["DIV in0 in1 0 -> tmp0", "FLOOR tmp0 -> out0"]),
        ("FLOOR_DIV", "INT32", ["DIV in0 in1 0 -> out0"]),
        ("FLOOR_MOD", "INT32", ["DIV in0 in1 0 -> tmp0", "MUL tmp0 in1 0 -> tmp1", "SUB in0 tmp1 0 -> out0"]),
    ],
)
def test_arithmetic(name: str, type_: str, expected: list[str]) -> None:
    assert convert(name, [of(type_, 2, 3), of(type_, 3)], [of(type_, 2, 3)]) == expected


def test_division_of_integers_rounds_toward_zero() -> None:
    assert convert("DIV", [of("INT32", 2, 3), of("INT32", 3)], [of("INT32", 2, 3)]) == [
        "NEG in1 -> tmp0",
        "DIV in0 tmp0 0 -> tmp1",
        "NEG tmp1 -> tmp2",
        "MINIMUM tmp2 [0] -> tmp3",
        "DIV in0 in1 0 -> tmp4",
        "MAXIMUM tmp4 tmp3 -> out0",
    ]


def test_add_n_adds_in_order() -> None:
    expected = ["ADD in0 in1 0 -> tmp0", "ADD tmp0 in2 0 -> out0"]
    assert convert("ADD_N", [f(2), f(2), f(2)], [f(2)]) == expected


@pytest.mark.parametrize(
    "name, type_, expected",
    [
        ("SQUARE", "FLOAT32", ["MUL in0 in0 0 -> out0"]),
        ("CEIL", "FLOAT32", ["NEG in0 -> tmp0", "FLOOR tmp0 -> tmp1", "NEG tmp1 -> out0"]),
        ("SIGN", "INT32", ["MAXIMUM in0 [-1] -> tmp0", "MINIMUM tmp0 [1] -> out0"]),
        ("RELU_0_TO_1", "FLOAT32", ["RELU1 in0 -> tmp0", "RELU tmp0 -> out0"]),
        ("ZEROS_LIKE", "INT32", ["FILL [2,3] 0 -> out0"]),
        ("ZEROS_LIKE", "FLOAT32", ["FILL [2,3] 0.0 -> out0"]),
    ],
)
def test_function_of_one_tensor(name: str, type_: str, expected: list[str]) -> None:
    assert convert(name, [of(type_, 2, 3)], [of(type_, 2, 3)]) == expected


def test_leaky_relu_has_one_slope() -> None:
    data = build(Op("LEAKY_RELU", [f(2, 3)], [f(2, 3)], options("LeakyRelu", alpha=0.25)))
    model = tflite.parse(data)
    assert listing(model) == ["PRELU in0 const -> out0"]
    assert value_of(model, arguments(model)[1]).tolist() == [0.25]


def test_comparison_of_plain_bytes_is_direct() -> None:
    """LiteRT ends the process on them."""
    expected = ["LESS in0 in1 -> out0"]
    assert convert("LESS", [of("INT8", 4), of("INT8", 4)], [of("BOOL", 4)]) == expected


# ---- Selection ------------------------------------------------------------------------------------------


def test_select_v2_broadcasts_each_input() -> None:
    inputs = [of("BOOL", 2, 1), f(3), Tensor((), data=[7])]
    assert convert("SELECT_V2", inputs, [f(2, 3)]) == [
        "LOGICAL_OR in0 const -> tmp0",
        "RESHAPE in1 [1,3] -> tmp1",
        "TILE tmp1 [2,1] -> tmp2",
        "SELECT tmp0 tmp2 const -> out0",
    ]


def test_constant_choice_is_broadcast_at_import() -> None:
    model = tflite.parse(build(Op("SELECT_V2", [of("BOOL", 2, 3), f(2, 3), Tensor((), data=[7])], [f(2, 3)])))
    assert value_of(model, arguments(model)[2]).tolist() == [[7] * 3] * 2


def test_select_by_rows() -> None:
    assert convert("SELECT", [of("BOOL", 2), f(2, 3), f(2, 3)], [f(2, 3)]) == [
        "SELECT in0 const const -> tmp0",
        "RESHAPE tmp0 [2,1] -> tmp1",
        "GREATER tmp1 const -> tmp2",
        "SELECT tmp2 in1 in2 -> out0",
    ]


def test_one_hot_compares_with_a_column() -> None:
    inputs = [of("INT32", 2), Tensor((), "INT32", [3]), Tensor((), data=[1]), Tensor((), data=[0])]
    assert convert("ONE_HOT", inputs, [f(2, 3)], options("OneHot", axis=-1)) == [
        "EXPAND_DIMS in0 1 -> tmp0",
        "EQUAL tmp0 [0,1,2] -> tmp1",
        "SELECT tmp1 const const -> out0",
    ]


def test_one_hot_of_booleans_is_a_comparison() -> None:
    on_off = [Tensor((), "BOOL", [False]), Tensor((), "BOOL", [True])]
    inputs = [of("INT32", 2), Tensor((), "INT32", [3]), *on_off]
    assert convert("ONE_HOT", inputs, [of("BOOL", 3, 2)], options("OneHot", axis=0)) == [
        "EXPAND_DIMS in0 0 -> tmp0",
        "NOT_EQUAL tmp0 [[0],[1],[2]] -> out0",
    ]


# ---- Joining and splitting ------------------------------------------------------------------------------


def test_concatenation_of_integers_is_pack_and_reshape() -> None:
    inputs = [of("INT32", 2, 3), of("INT32", 2, 3)]
    expected = ["PACK 1 in0 in1 -> tmp0", "RESHAPE tmp0 [2,6] -> out0"]
    assert convert("CONCATENATION", inputs, [of("INT32", 2, 6)], options("Concatenation", axis=-1)) == expected


def test_pack_of_rank_0() -> None:
    expected = ["PACK 0 in0 in1 -> tmp0", "RESHAPE tmp0 [2] -> out0"]
    assert convert("PACK", [f(), f()], [f(2)], options("Pack", axis=0, valuesCount=2)) == expected


def test_unpack() -> None:
    assert convert("UNPACK", [f(2, 3)], [f(3), f(3)], options("Unpack", axis=0, num=2)) == [
        "SPLIT in0 0 2 -> tmp0 tmp1",
        "RESHAPE tmp0 [3] -> out0",
        "RESHAPE tmp1 [3] -> out1",
    ]
    assert convert("UNPACK", [f(2)], [f(), f()], options("Unpack", axis=0, num=2)) == ["SPLIT in0 0 2 -> out0 out1"]
    assert convert("UNPACK", [f(1, 3)], [f(3)], options("Unpack", axis=0, num=1)) == ["RESHAPE in0 [3] -> out0"]


def test_split_v() -> None:
    table = options("SplitV", numSplits=2)
    assert convert("SPLIT_V", [f(2, 4), ints(1, -1), ints(1)], [f(2, 1), f(2, 3)], table) == [
        "SLICE in0 [0,0] [2,1] -> out0",
        "SLICE in0 [0,1] [2,3] -> out1",
    ]
    equal = convert("SPLIT_V", [f(2, 4), ints(2, 2), ints(1)], [f(2, 2), f(2, 2)], table)
    assert equal == ["SPLIT in0 1 2 -> out0 out1"]


@pytest.mark.parametrize(
    "type_, shape, expected",
    [
        ("FLOAT32", (1, 3), ["TILE in0 [2,1] -> out0"]),
        ("FLOAT32", (3,), ["RESHAPE in0 [1,3] -> tmp0", "TILE tmp0 [2,1] -> out0"]),
        ("BOOL", (3,), ["LOGICAL_OR in0 const -> out0"]),
    ],
)
def test_broadcast_to(type_: str, shape: tuple[int, ...], expected: list[str]) -> None:
    assert convert("BROADCAST_TO", [of(type_, *shape), ints(2, 3)], [of(type_, 2, 3)]) == expected


def test_fill_repeats_a_value_that_is_not_constant() -> None:
    expected = ["RESHAPE in0 [1,1] -> tmp0", "TILE tmp0 [2,3] -> out0"]
    assert convert("FILL", [ints(2, 3), f()], [f(2, 3)]) == expected


# ---- Positions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type_, shape, positions, masks, result, expected",
    [
        ("FLOAT32", (4,), ([-1], [0], [1]), {"shrinkAxisMask": 1}, (), ["STRIDED_SLICE in0 [3] [4] [1] 0 0 1 -> out0"]),
        ("FLOAT32", (4,), ([-1], [-9], [-2]), {}, (2,), ["STRIDED_SLICE in0 [3] [0] [-2] 0 1 0 -> out0"]),
        ("FLOAT32", (4,), ([1], [2], [1]), {"offset": 1}, (2,), ["STRIDED_SLICE in0 [1] [3] [1] 0 0 0 -> out0"]),
        ("FLOAT32", (4,), ([0, 0], [0, 4], [1, 1]), {"newAxisMask": 1}, (1, 4), ["RESHAPE in0 [1,4] -> out0"]),
        (
            "FLOAT32",
            (4,),
            ([0, 1], [0, 3], [1, 1]),
            {"newAxisMask": 1},
            (1, 2),
            ["STRIDED_SLICE in0 [1] [3] [1] 0 0 0 -> tmp0", "RESHAPE tmp0 [1,2] -> out0"],
        ),
        (
            "FLOAT32",
            (2, 3, 4),
            ([0, 1], [0, 3], [1, 1]),
            {"ellipsisMask": 1},
            (2, 3, 2),
            ["STRIDED_SLICE in0 [0,0,1] [2,3,3] [1,1,1] 0 0 0 -> out0"],
        ),
        (
            "INT32",
            (3, 4),
            ([1, 0], [2, 4], [1, 2]),
            {"shrinkAxisMask": 1},
            (2,),
            ["SLICE in0 [1,0] [1,4] -> tmp0", "GATHER tmp0 1 [0,2] -> tmp1", "RESHAPE tmp1 [2] -> out0"],
        ),
    ],
)
def test_strided_slice(
    type_: str,
    shape: tuple[int, ...],
    positions: tuple[list[int], list[int], list[int]],
    masks: dict[str, int],
    result: tuple[int, ...],
    expected: list[str],
) -> None:
    inputs = [of(type_, *shape), *(ints(*values) for values in positions)]
    assert convert("STRIDED_SLICE", inputs, [of(type_, *result)], options("StridedSlice", **masks)) == expected


def test_gather_of_one_index_drops_the_dimension() -> None:
    expected = ["GATHER in0 0 in1 -> tmp0", "RESHAPE tmp0 [3] -> out0"]
    assert convert("GATHER", [f(2, 3), of("INT32")], [f(3)], options("Gather")) == expected


def test_gather_in_batches_joins_them() -> None:
    inputs = [f(2, 3), Tensor((2, 1), "INT32", [[2], [1]])]
    assert convert("GATHER", inputs, [f(2, 1)], options("Gather", axis=1, batchDims=1)) == [
        "RESHAPE in0 [6] -> tmp0",
        "GATHER tmp0 0 [[2],[4]] -> out0",
    ]


def test_gather_nd() -> None:
    assert convert("GATHER_ND", [f(3, 2), of("INT32", 4, 1)], [f(4, 2)]) == [
        "RESHAPE in1 [4] -> tmp0",
        "GATHER in0 0 tmp0 -> out0",
    ]
    assert convert("GATHER_ND", [f(3, 2), Tensor((2, 2), "INT32", [[2, 1], [0, 1]])], [f(2)]) == [
        "RESHAPE in0 [6] -> tmp0",
        "GATHER tmp0 0 [5,1] -> out0",
    ]


def test_reverse_along_two_axes() -> None:
    expected = ["REVERSE in0 [0] -> tmp0", "REVERSE tmp0 [1] -> out0"]
    assert convert("REVERSE_V2", [f(2, 3), ints(0, -1)], [f(2, 3)]) == expected


# ---- Shapes ---------------------------------------------------------------------------------------------


def test_integers_are_squeezed_by_reshape() -> None:
    assert convert("SQUEEZE", [of("INT32", 1, 2)], [of("INT32", 2)], options("Squeeze")) == ["RESHAPE in0 [2] -> out0"]


def test_expand_dims_of_rank_0() -> None:
    assert convert("EXPAND_DIMS", [f(), ints(0)], [f(1)]) == ["RESHAPE in0 [1] -> out0"]


def test_transpose_that_moves_only_ones_is_a_reshape() -> None:
    expected = ["RESHAPE in0 [2,1,3] -> out0"]
    assert convert("TRANSPOSE", [of("INT32", 1, 2, 3), ints(1, 0, 2)], [of("INT32", 2, 1, 3)]) == expected


def test_reduction_of_rank_0_is_a_copy() -> None:
    assert convert("SUM", [f(), ints(0)], [f()], options("Reducer")) == ["RESHAPE in0 [1] -> out0"]


def test_batch_to_space_with_crops() -> None:
    crops = Tensor((2, 2), "INT32", [[1, 0], [0, 2]])
    assert convert("BATCH_TO_SPACE_ND", [f(4, 2, 2, 3), ints(2, 2), crops], [f(1, 3, 2, 3)]) == [
        "BATCH_TO_SPACE_ND in0 [2,2] -> tmp0",
        "SLICE tmp0 [0,1,0,0] [1,3,2,3] -> out0",
    ]


def test_space_to_batch_of_rank_3_has_a_width_of_1() -> None:
    paddings = Tensor((1, 2), "INT32", [[2, 1]])
    assert convert("SPACE_TO_BATCH_ND", [quant((2, 3, 3)), ints(2), paddings], [quant((4, 3, 3))]) == [
        "RESHAPE in0 [2,3,1,3] -> tmp0",
        "SPACE_TO_BATCH_ND tmp0 [2,1] [[2,1],[0,0]] -> tmp1",
        "RESHAPE tmp1 [4,3,3] -> out0",
    ]
