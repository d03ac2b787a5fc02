"""Mutations of an operand's type that the operation does not take (VALMODEL-13; checklist 4.4 and 4.5)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from nnhal.types import OperandType as T
from nnhal.types import operation_name
from nnhal.v1 import types_pb2
from tools.conformance.mutations import Base, Edit, mutation
from tools.conformance.mutations.operand import SCALARS

_UNQUANTISED = (T.TENSOR_BOOL8, T.TENSOR_FLOAT16, T.TENSOR_FLOAT32)
_QUANTISED = (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT16_ASYMM, T.TENSOR_QUANT16_SYMM)
_FLOATS = frozenset({T.TENSOR_FLOAT16, T.TENSOR_FLOAT32})
_ASYMM = frozenset({T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED})
_TENSORS = frozenset(type_ for type_ in T if type_.name.startswith("TENSOR_"))


@dataclass(frozen=True)
class Exception_:
    """Types that are not tried on an argument of an operation, because the operation may take them.

    `argument`: ("inputs", 1) for its input 1; None for any operand of the model.
    """

    argument: tuple[str, int] | None
    types: frozenset[T]

    def covers(self, operation: types_pb2.Operation, operand: int) -> bool:
        """Whether it is about an operand."""
        if self.argument is None:
            return True
        name, position = self.argument
        indexes = getattr(operation, name)
        return position < len(indexes) and indexes[position] == operand


_ANY_CAST = Exception_(None, frozenset({*_FLOATS, *_ASYMM, T.TENSOR_INT32}))
_FILTER = Exception_(("inputs", 1), frozenset({T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_SYMM_PER_CHANNEL}))

EXCEPTIONS: dict[str, tuple[Exception_, ...]] = {
    "LSH_PROJECTION": (Exception_(("inputs", 1), frozenset(T)),),
    **dict.fromkeys(("CAST", "ARGMAX", "ARGMIN"), (_ANY_CAST,)),
    "QUANTIZE": (Exception_(("inputs", 0), _FLOATS), Exception_(("outputs", 0), _ASYMM)),
    "RANDOM_MULTINOMIAL": (Exception_(("inputs", 0), _FLOATS),),
    "DEQUANTIZE": (
        Exception_(("inputs", 0), _ASYMM | {T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT8_SYMM_PER_CHANNEL}),
        Exception_(("outputs", 0), _FLOATS),
    ),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D"), (_FILTER,)),
    "AXIS_ALIGNED_BBOX_TRANSFORM": (Exception_(("inputs", 1), _ASYMM),),
    "RANK": (Exception_(("inputs", 0), _TENSORS),),
}
"""By the operation that must be present somewhere in main."""


@mutation("VALMODEL-13")
def type_that_the_operation_does_not_take(base: Base) -> Iterator[Edit]:
    """Gives each operand every other type, adapted to it."""
    for i, operand in enumerate(base.operands):
        allowed = _not_tried(base, i)
        for type_ in T:
            if type_ != int(operand.type) and type_ not in allowed:
                yield Edit(f"{base.operand_name(i)} made {type_.name}", partial(_change, operand=i, type_=type_))


def _not_tried(base: Base, operand: int) -> frozenset[T]:
    types: frozenset[T] = frozenset()
    for operation in base.operations:
        for exception in EXCEPTIONS.get(operation_name(int(operation.type)), ()):
            if exception.covers(operation, operand):
                types |= exception.types
    return types


def _change(model: types_pb2.Model, *, operand: int, type_: T) -> None:
    message = model.main.operands[operand]
    message.type = int(type_)  # type: ignore[assignment]
    if adapt := _ADAPTATIONS.get(type_):
        adapt(message)


def _to_scalar(operand: types_pb2.Operand) -> None:
    operand.dimensions[:] = []
    operand.scale, operand.zero_point = 0.0, 0


def _to_unquantised(operand: types_pb2.Operand) -> None:
    _make_tensor(operand)
    operand.scale, operand.zero_point = 0.0, 0


def _to_int32(operand: types_pb2.Operand) -> None:
    _make_tensor(operand)
    operand.zero_point = 0


def _to_quantised(operand: types_pb2.Operand) -> None:
    _make_tensor(operand)
    operand.scale = operand.scale or 1.0


def _make_tensor(operand: types_pb2.Operand) -> None:
    operand.dimensions[:] = list(operand.dimensions) or [1]


_ADAPTATIONS: dict[T, Callable[[types_pb2.Operand], None]] = {
    **dict.fromkeys(SCALARS, _to_scalar),
    **dict.fromkeys(_UNQUANTISED, _to_unquantised),
    # its parameters stay absent: the vendor test suite means to set them, but assigns to an optional that is not there
    T.TENSOR_QUANT8_SYMM_PER_CHANNEL: _to_unquantised,
    T.TENSOR_INT32: _to_int32,
    **dict.fromkeys(_QUANTISED, _to_quantised),
}
"""What changes with the type; TENSOR_QUANT8_ASYMM_SIGNED and SUBGRAPH leave everything as it is."""
