"""Mutation of an operand's type to one that its operation does not support (VALMODEL-13; checklist 4.4 and 4.5)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from nnhal.types import OperandType as T
from nnhal.types import operation_name
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.mutations import Edit, ValidModel, mutation
from nnhal_tools.conformance.mutations.operand import SCALARS

_UNADAPTED = (T.TENSOR_QUANT8_ASYMM_SIGNED, T.SUBGRAPH)
"""Types with which no other field changes."""
_QUANTIZED = (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT16_ASYMM, T.TENSOR_QUANT16_SYMM)
_FLOATS = frozenset({T.TENSOR_FLOAT16, T.TENSOR_FLOAT32})
_ASYMM = frozenset({T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED})
_TENSORS = frozenset(type_ for type_ in T if type_.name.startswith("TENSOR_"))


@dataclass(frozen=True)
class ExemptTypes:
    """Operand types that the mutation leaves out because the operation may support them.

    `argument`: for example ("inputs", 1); None for every operand of the model.
    """

    argument: tuple[str, int] | None
    types: frozenset[T]

    def covers(self, operation: types_pb2.Operation, operand: int) -> bool:
        """Return whether an operand is exempt."""
        if self.argument is None:
            return True
        name, position = self.argument
        indexes = getattr(operation, name)
        return position < len(indexes) and indexes[position] == operand


_ANY_CAST = ExemptTypes(None, frozenset({*_FLOATS, *_ASYMM, T.TENSOR_INT32}))
_FILTER = ExemptTypes(("inputs", 1), frozenset({T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_SYMM_PER_CHANNEL}))

EXEMPTIONS: dict[str, tuple[ExemptTypes, ...]] = {
    "LSH_PROJECTION": (ExemptTypes(("inputs", 1), frozenset(T)),),
    **dict.fromkeys(("CAST", "ARGMAX", "ARGMIN"), (_ANY_CAST,)),
    "QUANTIZE": (ExemptTypes(("inputs", 0), _FLOATS), ExemptTypes(("outputs", 0), _ASYMM)),
    "RANDOM_MULTINOMIAL": (ExemptTypes(("inputs", 0), _FLOATS),),
    "DEQUANTIZE": (
        ExemptTypes(("inputs", 0), _ASYMM | {T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT8_SYMM_PER_CHANNEL}),
        ExemptTypes(("outputs", 0), _FLOATS),
    ),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D"), (_FILTER,)),
    "AXIS_ALIGNED_BBOX_TRANSFORM": (ExemptTypes(("inputs", 1), _ASYMM),),
    "RANK": (ExemptTypes(("inputs", 0), _TENSORS),),
}
"""Exemptions by operation. They apply if the operation occurs anywhere in the main subgraph."""


@mutation("VALMODEL-13")
def unsupported_operand_type(model: ValidModel) -> Iterator[Edit]:
    """Give each operand every other type, with its other fields adapted to the type."""
    for i, operand in enumerate(model.operands):
        exempt = _exempt_types(model, i)
        for type_ in T:
            if type_ != int(operand.type) and type_ not in exempt:
                yield Edit(
                    f"{model.operand_name(i)} changed to {type_.name}", partial(_set_type, operand=i, type_=type_)
                )


def _exempt_types(model: ValidModel, operand: int) -> frozenset[T]:
    types: frozenset[T] = frozenset()
    for operation in model.operations:
        for exemption in EXEMPTIONS.get(operation_name(int(operation.type)), ()):
            if exemption.covers(operation, operand):
                types |= exemption.types
    return types


def _set_type(model: types_pb2.Model, *, operand: int, type_: T) -> None:
    message = model.main.operands[operand]
    message.type = int(type_)  # type: ignore[assignment]
    if type_ in _UNADAPTED:
        return
    message.dimensions[:] = [] if type_ in SCALARS else list(message.dimensions) or [1]
    if type_ in _QUANTIZED:
        message.scale = message.scale or 1.0
        return
    message.zero_point = 0
    # The parameters of TENSOR_QUANT8_SYMM_PER_CHANNEL stay absent: the vendor test suite intends to set them, but
    # assigns to an unset optional.
    if type_ != T.TENSOR_INT32:
        message.scale = 0.0
