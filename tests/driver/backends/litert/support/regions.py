"""Models of one region of the LiteRT extension."""

import numpy as np

from nnhal import litert_extension
from nnhal.types import (
    DataLocation,
    ExtensionNameAndPrefix,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    Subgraph,
)
from nnhal_driver.backends.litert.submodel import SubModelTensor, parse

_PREFIX = 1 << 16
_TYPES = {
    "FLOAT32": OperandType.TENSOR_FLOAT32,
    "FLOAT16": OperandType.TENSOR_FLOAT16,
    "INT32": OperandType.TENSOR_INT32,
    "BOOL": OperandType.TENSOR_BOOL8,
    **{dtype.name.upper(): _PREFIX | number for number, dtype in litert_extension.ELEMENT_TYPES.items()},
}


def region(data: bytes, submodel: bytes | None = None, *, is_dynamic: bool = False) -> Model:
    """Return a model of one region.

    Args:
        data: the TFLite model that names the inputs and outputs.
        submodel: the sub-model; the same if None.
        is_dynamic: whether the dimensions of the outputs are unknown.
    """
    parsed, submodel = parse(data), submodel or data
    location = DataLocation(0, 0, len(submodel))
    constant = Operand(
        _PREFIX | litert_extension.SUBMODEL_BYTES,
        (len(submodel),),
        lifetime=OperandLifeTime.CONSTANT_COPY,
        location=location,
    )
    inputs = [_operand(tensor, OperandLifeTime.SUBGRAPH_INPUT) for tensor in parsed.inputs]
    outputs = [_operand(tensor, OperandLifeTime.SUBGRAPH_OUTPUT, is_dynamic) for tensor in parsed.outputs]
    numbers = range(1, 1 + len(inputs)), range(1 + len(inputs), 1 + len(inputs) + len(outputs))
    operation = Operation(_PREFIX | litert_extension.SUBMODEL, (0, *numbers[0]), tuple(numbers[1]))
    main = Subgraph((constant, *inputs, *outputs), (operation,), tuple(numbers[0]), tuple(numbers[1]))
    names = (ExtensionNameAndPrefix(litert_extension.NAME, 1),)
    return Model(main, operand_values=np.frombuffer(submodel, np.uint8).tobytes(), extension_name_to_prefix=names)


def _operand(tensor: SubModelTensor, lifetime: OperandLifeTime, is_dynamic: bool = False) -> Operand:
    shape = tensor.shape or (1,)
    type_ = _TYPES.get(tensor.type, OperandType.TENSOR_FLOAT32)  # a seed of the fuzz tests may have any type
    return Operand(type_, (0,) * len(shape) if is_dynamic else shape, lifetime=lifetime)
