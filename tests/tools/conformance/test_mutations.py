"""The mutations of VALMODEL make what the checklist says, on copies, and leave out exactly its exceptions."""

from collections.abc import Sequence

import pytest

from nnhal.types import OperandLifeTime as L
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import types_pb2
from nnhal_tools.conformance import mutations
from nnhal_tools.conformance.ids import CHECKS
from nnhal_tools.conformance.mutations import ValidModel
from nnhal_tools.conformance.mutations.argument import MORE_INPUTS, REMOVABLE_INPUTS
from nnhal_tools.conformance.mutations.operand import INVALID_SCALES, INVALID_ZERO_POINTS
from nnhal_tools.conformance.suites.validation import ARGUMENTS
from nnhal_tools.conformance.vectors import builtin
from nnhal_tools.conformance.vectors.samples import builtin_case

MUTATORS = mutations.load()


def model_of(operation: Op, types: Sequence[T], outputs: Sequence[T]) -> types_pb2.Model:
    """One operation on inputs of the model; tensors have one dimension."""
    model = types_pb2.Model()
    for types_, lifetime in ((types, L.SUBGRAPH_INPUT), (outputs, L.SUBGRAPH_OUTPUT)):
        for type_ in types_:
            dimensions = [2] if type_.name.startswith("TENSOR") else []
            model.main.operands.add(type=int(type_), dimensions=dimensions, lifetime=int(lifetime))
    count = len(types)
    model.main.input_indexes[:] = range(count)
    model.main.output_indexes[:] = range(count, count + len(outputs))
    model.main.operations.add(type=int(operation), inputs=range(count), outputs=range(count, count + len(outputs)))
    return model


def mutants(check: str, model: types_pb2.Model) -> list[types_pb2.Model]:
    base = ValidModel(model)
    return [base.with_edit(edit) for edit in MUTATORS[check](base)]


def descriptions(check: str, model: types_pb2.Model) -> list[str]:
    return [edit.description for edit in MUTATORS[check](ValidModel(model))]


def chain() -> types_pb2.Model:
    """quantize_dequantize: operand 0 is between, 1 the input, 2 the output; QUANTIZE then DEQUANTIZE."""
    return builtin_case("quantize_dequantize").model()


def test_there_is_one_for_each_id() -> None:
    ids = {check.id for check in CHECKS.values() if check.suite == "validation"} - {
        "VALMODEL-01",
        "VALMODEL-02",
        "VALMODEL-03",
    }
    assert set(MUTATORS) | set(ARGUMENTS) == ids


@pytest.mark.parametrize("check", MUTATORS)
def test_every_edit_changes_a_copy(check: str) -> None:
    count = 0
    for case in builtin.cases():
        base = ValidModel(case.model())
        before = base.message.SerializeToString()
        for edit in MUTATORS[check](base):
            assert base.with_edit(edit) != base.message, edit.description
            count += 1
        assert base.message.SerializeToString() == before
    assert count > 0


def test_04_05_operations_are_moved() -> None:
    (front,) = mutants("VALMODEL-04", chain())  # only DEQUANTIZE reads what an operation writes
    assert [int(o.type) for o in front.main.operations] == [Op.DEQUANTIZE, Op.QUANTIZE]
    (end,) = mutants("VALMODEL-05", chain())  # only the output of QUANTIZE is read
    assert [int(o.type) for o in end.main.operations] == [Op.DEQUANTIZE, Op.QUANTIZE]


def test_06_07_types_and_ranks() -> None:
    model = builtin_case("add_float").model()
    found = mutants("VALMODEL-06", model)
    assert [int(m.main.operands[i // 2].type) for i, m in enumerate(found)] == [-1, 16] * 4
    (only,) = mutants("VALMODEL-07", model)  # of the activation
    assert list(only.main.operands[2].dimensions) == [0]


def test_08_09_scales_and_zero_points() -> None:
    assert {type_ for type_ in T if INVALID_SCALES[type_] == 1.0} == {
        *(T.FLOAT16, T.FLOAT32, T.INT32, T.UINT32, T.BOOL, T.SUBGRAPH),
        *(T.TENSOR_BOOL8, T.TENSOR_FLOAT16, T.TENSOR_FLOAT32, T.TENSOR_QUANT8_SYMM_PER_CHANNEL),
    }
    assert (INVALID_SCALES[T.TENSOR_INT32], INVALID_SCALES[T.TENSOR_QUANT8_SYMM]) == (-1.0, 0.0)
    assert INVALID_ZERO_POINTS[T.TENSOR_QUANT8_ASYMM] == (-1, 256)
    assert INVALID_ZERO_POINTS[T.TENSOR_QUANT16_SYMM] == (-32769, -1, 1, 32768)
    assert INVALID_ZERO_POINTS[T.TENSOR_QUANT8_ASYMM_SIGNED] == ()
    found = mutants("VALMODEL-09", builtin_case("add_quant8").model())
    assert [[o.zero_point for o in m.main.operands] for m in found[:3]] == [
        [-1, 128, 0, 50],
        [256, 128, 0, 50],
        [10, -1, 0, 50],
    ]


def test_10_lifetimes_against_writers() -> None:
    model = chain()
    found = mutants("VALMODEL-10", model)
    told = [(int(m.main.operands[i // 2].lifetime), list(m.main.input_indexes)) for i, m in enumerate(found)]
    assert told == [
        (L.SUBGRAPH_INPUT, [1, 0]),
        (L.CONSTANT_COPY, [1]),
        (L.TEMPORARY_VARIABLE, []),
        (L.SUBGRAPH_OUTPUT, []),
        (L.SUBGRAPH_INPUT, [1, 2]),
        (L.CONSTANT_COPY, [1]),
    ]
    assert list(found[3].main.output_indexes) == [2, 1]
    assert list(found[4].main.output_indexes) == []
    assert (found[5].main.operands[2].location.length, len(found[5].operand_values)) == (24, 24)


def test_10_unknown_sizes_make_no_constants() -> None:
    model = chain()
    model.main.operands[0].dimensions[:] = [0]
    assert len(mutants("VALMODEL-10", model)) == 5
    model.main.operands[0].dimensions[:] = []
    assert len(mutants("VALMODEL-10", model)) == 5


def test_10_leaves_out_what_no_message_holds() -> None:
    model = chain()
    model.main.operands[2].dimensions[:] = [600_000]
    assert [p for p in descriptions("VALMODEL-10", model) if "2" in p and "CONSTANT_COPY" in p] == []
    assert len(mutants("VALMODEL-10", model)) == 5


def test_11_lifetimes_against_lists() -> None:
    model = builtin_case("add_float").model()
    found = mutants("VALMODEL-11", model)
    assert [int(m.main.operands[i].lifetime) for i, m in enumerate(found)] == [
        L.CONSTANT_COPY,
        L.CONSTANT_COPY,
        L.SUBGRAPH_INPUT,
        L.TEMPORARY_VARIABLE,
    ]
    assert all(m.main.input_indexes == model.main.input_indexes for m in found)
    assert not found[2].main.operands[2].HasField("location")


def test_12_writes_again() -> None:
    found = mutants("VALMODEL-12", builtin_case("split_int32").model())
    first, second, third = (list(m.main.operations[1].outputs) for m in found)
    assert (first, second, third) == ([3, 6, 7], [6, 4, 7], [6, 7, 5])
    new = found[0].main.operands[6]
    assert (int(new.type), int(new.lifetime), list(new.dimensions)) == (T.TENSOR_INT32, L.TEMPORARY_VARIABLE, [2, 2])


def test_13_types_are_adapted() -> None:
    base = ValidModel(builtin_case("add_quant8").model())
    by_description = {edit.description: base.with_edit(edit).main.operands for edit in MUTATORS["VALMODEL-13"](base)}
    assert len(by_description) == 4 * 15

    def facts_of(description: str, i: int) -> tuple[list[int], float, int]:
        operand = by_description[description][i]
        return list(operand.dimensions), operand.scale, operand.zero_point

    tensor, scalar = "operand 0 (TENSOR_QUANT8_ASYMM) changed to ", "operand 2 (INT32) changed to "
    assert facts_of(f"{tensor}FLOAT16", 0) == ([], 0.0, 0)
    assert facts_of(f"{tensor}TENSOR_FLOAT32", 0) == ([4], 0.0, 0)
    assert facts_of(f"{tensor}TENSOR_INT32", 0) == ([4], 0.5, 0)
    assert facts_of(f"{tensor}TENSOR_QUANT16_SYMM", 0) == ([4], 0.5, 10)
    assert facts_of(f"{tensor}TENSOR_QUANT8_ASYMM_SIGNED", 0) == ([4], 0.5, 10)
    assert facts_of(f"{scalar}TENSOR_FLOAT32", 2) == ([1], 0.0, 0)
    assert facts_of(f"{scalar}TENSOR_QUANT8_ASYMM", 2) == ([1], 1.0, 0)
    assert facts_of(f"{scalar}TENSOR_QUANT8_ASYMM_SIGNED", 2) == ([], 0.0, 0)
    channels = by_description[f"{tensor}TENSOR_QUANT8_SYMM_PER_CHANNEL"][0]
    assert not channels.HasField("extra_params")


F32, Q8, I8 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED
ANY = {T.TENSOR_FLOAT16, F32, T.TENSOR_INT32, Q8, I8}


@pytest.mark.parametrize(
    ("operation", "types", "outputs", "operand", "left_out"),
    [
        (Op.LSH_PROJECTION, [F32, F32, F32, T.INT32], [T.TENSOR_INT32], 1, set(T)),
        (Op.LSH_PROJECTION, [F32, F32, F32, T.INT32], [T.TENSOR_INT32], 0, {F32}),
        (Op.CAST, [F32], [T.TENSOR_INT32], 1, ANY),
        (Op.ARGMAX, [F32, T.INT32], [T.TENSOR_INT32], 1, ANY | {T.INT32}),
        (Op.QUANTIZE, [F32], [Q8], 0, {T.TENSOR_FLOAT16, F32}),
        (Op.QUANTIZE, [F32], [Q8], 1, {Q8, I8}),
        (Op.RANDOM_MULTINOMIAL, [F32, T.INT32, T.TENSOR_INT32], [T.TENSOR_INT32], 0, {T.TENSOR_FLOAT16, F32}),
        (Op.DEQUANTIZE, [Q8], [F32], 0, {Q8, I8, T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT8_SYMM_PER_CHANNEL}),
        (Op.DEQUANTIZE, [Q8], [F32], 1, {T.TENSOR_FLOAT16, F32}),
        (Op.CONV_2D, [Q8, Q8, T.TENSOR_INT32], [Q8], 1, {Q8, T.TENSOR_QUANT8_SYMM_PER_CHANNEL}),
        (Op.CONV_2D, [Q8, Q8, T.TENSOR_INT32], [Q8], 0, {Q8}),
        (Op.AXIS_ALIGNED_BBOX_TRANSFORM, [F32, F32, T.TENSOR_INT32, F32], [F32], 1, {F32, Q8, I8}),
        (Op.RANK, [F32], [T.INT32], 0, {t for t in T if t.name.startswith("TENSOR")}),
    ],
)
def test_13_exceptions(operation: Op, types: list[T], outputs: list[T], operand: int, left_out: set[T]) -> None:
    tried = {
        description.rsplit(" ", 1)[1]
        for description in descriptions("VALMODEL-13", model_of(operation, types, outputs))
        if description.startswith(f"operand {operand} ")
    }
    assert tried == {t.name for t in T if t not in left_out}


def test_13_an_exception_counts_for_the_whole_model() -> None:
    model = model_of(Op.CAST, [F32], [F32])
    model.main.operands.add(type=int(T.INT32), lifetime=int(L.NO_VALUE))
    tried = {
        description.rsplit(" ", 1)[1]
        for description in descriptions("VALMODEL-13", model)
        if description.startswith("operand 2 ")
    }
    assert tried == {t.name for t in T if t not in ANY | {T.INT32}}


def test_14_to_16_operations() -> None:
    model = chain()
    assert [int(m.main.operations[0].type) for m in mutants("VALMODEL-14", model)[:2]] == [-1, 106]
    assert [list(m.main.operations[0].inputs) for m in mutants("VALMODEL-15", model)] == [[3], [1]]
    assert [list(m.main.operations[1].outputs) for m in mutants("VALMODEL-16", model)] == [[2], [3]]


def test_17_redirects_what_is_read() -> None:
    (found,) = mutants("VALMODEL-17", chain())
    assert [list(o.outputs) for o in found.main.operations] == [[3], [2]]
    assert found.main.operands[3].scale == found.main.operands[0].scale


def test_18_indexes_above_a_removed_operand_stay() -> None:
    model = builtin_case("concatenation_int8").model()
    first = mutants("VALMODEL-18", model)[0]
    assert len(first.main.operands) == 3
    # 1, the second tensor, now means the axis, and the output 3 is out of range
    assert (list(first.main.operations[0].inputs), list(first.main.operations[0].outputs)) == ([1, 2], [3])
    assert (list(first.main.input_indexes), list(first.main.output_indexes)) == ([1], [3])


def test_18_exceptions() -> None:
    assert [
        description.split()[1] for description in descriptions("VALMODEL-18", builtin_case("split_int32").model())
    ] == ["0", "1", "2"]
    model = builtin_case("split_int32").model()
    model.main.operations.add(type=int(Op.FLOOR), inputs=[3], outputs=[4])
    assert [description.split()[1] for description in descriptions("VALMODEL-18", model)] == [
        "0",
        "1",
        "2",
    ]  # 3 is read, but SPLIT's
    model.main.operations[0].type = int(Op.TOPK_V2)  # type: ignore[assignment]
    assert [description.split()[1] for description in descriptions("VALMODEL-18", model)] == ["0", "1", "2", "3"]


def test_19_to_21_removals() -> None:
    assert [len(m.main.operations) for m in mutants("VALMODEL-19", chain())] == [1, 1]
    model = builtin_case("add_float").model()
    assert [list(m.main.operations[0].inputs) for m in mutants("VALMODEL-20", model)] == [[1, 2], [0, 2], [0, 1]]
    assert [list(m.main.operations[0].outputs) for m in mutants("VALMODEL-21", model)] == [[]]


REMOVABLE = {
    ("CONCATENATION", 3): {0, 1},
    ("CONCATENATION", 2): set(),
    ("DEPTHWISE_CONV_2D", 12): {11},
    ("DEPTHWISE_CONV_2D", 9): {8},
    ("DEPTHWISE_CONV_2D", 11): set(),
    ("CONV_2D", 11): {10},
    ("AVERAGE_POOL_2D", 8): {7},
    ("MAX_POOL_2D", 11): {10},
    ("L2_POOL_2D", 10): set(),
    ("RESIZE_BILINEAR", 6): {3, 4, 5},
    ("RESIZE_BILINEAR", 3): set(),
    ("RESIZE_NEAREST_NEIGHBOR", 5): {3, 4},
    ("RESIZE_NEAREST_NEIGHBOR", 4): set(),
    ("SPACE_TO_DEPTH", 3): {2},
    ("DEPTH_TO_SPACE", 2): set(),
    ("BATCH_TO_SPACE_ND", 3): {2},
    ("SPACE_TO_BATCH_ND", 4): {3},
    ("L2_NORMALIZATION", 2): {1},
    ("LOCAL_RESPONSE_NORMALIZATION", 6): {5},
    ("SOFTMAX", 3): {2},
    ("SOFTMAX", 2): set(),
    ("PACK", 4): {1, 2, 3},
    ("PACK", 2): set(),
}


@pytest.mark.parametrize(("operation", "count"), REMOVABLE)
def test_20_exceptions(operation: str, count: int) -> None:
    model = model_of(Op[operation], [F32] * count, [F32])
    left = [set(range(count)) - set(m.main.operations[0].inputs) for m in mutants("VALMODEL-20", model)]
    assert left == [{i} for i in range(count) if i not in REMOVABLE[operation, count]]


def test_20_no_other_operation_is_excepted() -> None:
    assert set(REMOVABLE_INPUTS) == {operation for operation, _ in REMOVABLE}


MAY_HAVE_MORE = {
    ("L2_NORMALIZATION", 1): True,
    ("L2_NORMALIZATION", 2): False,
    ("LOCAL_RESPONSE_NORMALIZATION", 5): True,
    ("LOCAL_RESPONSE_NORMALIZATION", 6): False,
    ("SOFTMAX", 2): True,
    ("SOFTMAX", 3): False,
    ("RESIZE_BILINEAR", 5): True,
    ("RESIZE_BILINEAR", 6): False,
    ("RESIZE_NEAREST_NEIGHBOR", 4): True,
    ("RESIZE_NEAREST_NEIGHBOR", 6): False,
}


@pytest.mark.parametrize(("operation", "count"), MAY_HAVE_MORE)
def test_22_exceptions(operation: str, count: int) -> None:
    found = mutants("VALMODEL-22", model_of(Op[operation], [F32] * count, [F32]))
    assert (not found) == MAY_HAVE_MORE[operation, count]


def test_22_no_other_operation_is_excepted() -> None:
    assert set(MORE_INPUTS) == {operation for operation, _ in MAY_HAVE_MORE}


def test_22_23_additions() -> None:
    model = builtin_case("add_float").model()
    (more,) = mutants("VALMODEL-22", model)
    assert (list(more.main.operations[0].inputs), list(more.main.input_indexes)) == ([0, 1, 2, 4], [0, 1, 4])
    assert (int(more.main.operands[4].type), int(more.main.operands[4].lifetime)) == (T.INT32, L.SUBGRAPH_INPUT)
    (more,) = mutants("VALMODEL-23", model)
    assert (list(more.main.operations[0].outputs), list(more.main.output_indexes)) == ([3, 4], [3, 4])
    assert int(more.main.operands[4].lifetime) == L.SUBGRAPH_OUTPUT
