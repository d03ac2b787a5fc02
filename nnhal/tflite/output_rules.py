"""What NNAPI demands of the quantisation of an operation's outputs where TFLite lets it be anything, as tables.

Source: `quantization` of the outputs in the operation files. Models from TFLite's own converter keep to most of it.
"""

from collections.abc import Mapping, Sequence

from nnhal.types import Operand, OperandType, OperationType, type_name

_FROM_ZERO = {OperandType.TENSOR_QUANT8_ASYMM: (1 / 256, 0), OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128)}
_AROUND_ZERO = {OperandType.TENSOR_QUANT8_ASYMM: (1 / 128, 128), OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 128, 0)}

_FIXED: Mapping[int, Mapping[OperandType, tuple[float, int]]] = {
    OperationType.SOFTMAX: _FROM_ZERO,
    OperationType.LOGISTIC: _FROM_ZERO,
    OperationType.TANH: _AROUND_ZERO,
    OperationType.L2_NORMALIZATION: _AROUND_ZERO,
}
"""Scale and zero point of the output, by its type."""

_SAME_AS_INPUT: Mapping[int, int] = {
    OperationType.AVERAGE_POOL_2D: 0,
    OperationType.BATCH_TO_SPACE_ND: 0,
    OperationType.DEPTH_TO_SPACE: 0,
    OperationType.EMBEDDING_LOOKUP: 1,
    OperationType.EXPAND_DIMS: 0,
    OperationType.GATHER: 0,
    OperationType.MAX_POOL_2D: 0,
    OperationType.MEAN: 0,
    OperationType.MIRROR_PAD: 0,
    OperationType.PACK: 1,
    OperationType.PAD: 0,
    OperationType.PAD_V2: 0,
    OperationType.REDUCE_MAX: 0,
    OperationType.REDUCE_MIN: 0,
    OperationType.RELU: 0,
    OperationType.RELU1: 0,
    OperationType.RELU6: 0,
    OperationType.RESHAPE: 0,
    OperationType.RESIZE_BILINEAR: 0,
    OperationType.RESIZE_NEAREST_NEIGHBOR: 0,
    OperationType.REVERSE: 0,
    OperationType.SLICE: 0,
    OperationType.SPACE_TO_BATCH_ND: 0,
    OperationType.SPACE_TO_DEPTH: 0,
    OperationType.SPLIT: 0,
    OperationType.SQUEEZE: 0,
    OperationType.STRIDED_SLICE: 0,
    OperationType.TILE: 0,
    OperationType.TOPK_V2: 0,
    OperationType.TRANSPOSE: 0,
}
"""The input whose scale and zero point every output of its type has."""


def complaint(type_: int, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> str | None:
    """Says which output has a scale or zero point that the operation cannot give, or None."""
    for i, output in enumerate(outputs):
        wanted = _wanted(type_, inputs, output)
        if wanted is not None and wanted != (output.scale, output.zero_point):
            found = f"scale {output.scale} and zero point {output.zero_point}"
            return f"output {i} ({type_name(output.type)}) has {found}; it must have {wanted[0]} and {wanted[1]}"
    return None


def _wanted(type_: int, inputs: Sequence[Operand], output: Operand) -> tuple[float, int] | None:
    if type_ in _FIXED:
        return _FIXED[type_].get(OperandType(output.type))
    if type_ not in _SAME_AS_INPUT:
        return None
    source = inputs[_SAME_AS_INPUT[type_]]
    return (source.scale, source.zero_point) if source.type == output.type else None
