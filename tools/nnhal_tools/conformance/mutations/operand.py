"""Mutations of the fields of an operand (VALMODEL-06 to -09)."""

from collections.abc import Iterator
from functools import partial

from nnhal.types import OperandType as T
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.mutations import Edit, ValidModel, mutation

SCALARS = (T.FLOAT16, T.FLOAT32, T.INT32, T.UINT32, T.BOOL)

INVALID_SCALES = {
    **dict.fromkeys((*SCALARS, T.TENSOR_BOOL8, T.TENSOR_FLOAT16, T.TENSOR_FLOAT32), 1.0),
    **dict.fromkeys((T.TENSOR_QUANT8_SYMM_PER_CHANNEL, T.SUBGRAPH), 1.0),
    T.TENSOR_INT32: -1.0,
    **dict.fromkeys((T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT8_ASYMM_SIGNED), 0.0),
    **dict.fromkeys((T.TENSOR_QUANT16_ASYMM, T.TENSOR_QUANT16_SYMM), 0.0),
}
"""Invalid scale of each type (checklist 4.1)."""

INVALID_ZERO_POINTS: dict[T, tuple[int, ...]] = {
    **dict.fromkeys((*SCALARS, T.TENSOR_BOOL8, T.TENSOR_FLOAT16, T.TENSOR_FLOAT32), (1,)),
    **dict.fromkeys((T.TENSOR_QUANT8_SYMM_PER_CHANNEL, T.SUBGRAPH, T.TENSOR_INT32), (1,)),
    T.TENSOR_QUANT8_ASYMM: (-1, 256),
    T.TENSOR_QUANT8_SYMM: (-129, -1, 1, 128),
    T.TENSOR_QUANT16_ASYMM: (-1, 65536),
    T.TENSOR_QUANT16_SYMM: (-32769, -1, 1, 32768),
    T.TENSOR_QUANT8_ASYMM_SIGNED: (),
}
"""Invalid zero points of each type. The vendor test suite has none for the signed type."""

UNKNOWN_TYPES = (-1, 16)


@mutation("VALMODEL-06")
def unknown_type(model: ValidModel) -> Iterator[Edit]:
    """Give each operand the type numbers just below and just above the valid ones."""
    for i in range(len(model.operands)):
        for number in UNKNOWN_TYPES:
            yield Edit(
                f"{model.operand_name(i)} with type {number}", partial(_set, operand=i, name="type", value=number)
            )


@mutation("VALMODEL-07")
def scalar_with_dimensions(model: ValidModel) -> Iterator[Edit]:
    """Give each scalar a dimension."""
    for i, operand in enumerate(model.operands):
        if int(operand.type) in SCALARS:
            yield Edit(f"{model.operand_name(i)} with dimensions [0]", partial(_make_rank_1, operand=i))


@mutation("VALMODEL-08")
def invalid_scale(model: ValidModel) -> Iterator[Edit]:
    """Give each operand a scale that its type forbids."""
    for i, operand in enumerate(model.operands):
        scale = INVALID_SCALES[T(operand.type)]
        yield Edit(f"{model.operand_name(i)} with scale {scale}", partial(_set, operand=i, name="scale", value=scale))


@mutation("VALMODEL-09")
def invalid_zero_point(model: ValidModel) -> Iterator[Edit]:
    """Give each operand every zero point of the table that its type forbids."""
    for i, operand in enumerate(model.operands):
        for value in INVALID_ZERO_POINTS[T(operand.type)]:
            change = partial(_set, operand=i, name="zero_point", value=value)
            yield Edit(f"{model.operand_name(i)} with zero point {value}", change)


def _set(model: types_pb2.Model, *, operand: int, name: str, value: float) -> None:
    setattr(model.main.operands[operand], name, value)


def _make_rank_1(model: types_pb2.Model, *, operand: int) -> None:
    model.main.operands[operand].dimensions[:] = [0]
