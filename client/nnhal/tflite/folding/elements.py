"""Movements of elements of constants: SLICE, STRIDED_SLICE, PACK, CONCATENATION, GATHER, TRANSPOSE and others."""

from math import prod

import numpy as np

from nnhal.tflite.folding.evaluator import MAX_ELEMENTS, GraphCall, Outputs, evaluator
from nnhal.tflite_schema import BuiltinOperator


@evaluator(BuiltinOperator.SLICE)
def slice_(call: GraphCall) -> Outputs:
    """Evaluate SLICE. A size of -1 extends to the end."""
    windows = zip(call.integers(1), call.integers(2), strict=True)
    return [call.array(0)[tuple(slice(begin, None if size < 0 else begin + size) for begin, size in windows)]]


@evaluator(BuiltinOperator.STRIDED_SLICE)
def strided_slice(call: GraphCall) -> Outputs:
    """Evaluate STRIDED_SLICE with the masks that numpy's indexing has a counterpart for."""
    if any(call.option(name, 0) for name in ("ellipsis_mask", "new_axis_mask", "offset")):
        return None
    begin_mask, end_mask, shrink = (call.option(name, 0) for name in ("begin_mask", "end_mask", "shrink_axis_mask"))
    index: list[int | slice] = []
    for i, (begin, end, stride) in enumerate(zip(call.integers(1), call.integers(2), call.integers(3), strict=True)):
        if shrink >> i & 1:
            index.append(begin)
        else:
            index.append(slice(None if begin_mask >> i & 1 else begin, None if end_mask >> i & 1 else end, stride))
    return [call.array(0)[tuple(index)]]


@evaluator(BuiltinOperator.PACK)
def pack(call: GraphCall) -> Outputs:
    """Evaluate PACK."""
    return [np.stack(call.arrays(), call.option("axis", 0))]


@evaluator(BuiltinOperator.UNPACK)
def unpack(call: GraphCall) -> Outputs:
    """Evaluate UNPACK."""
    values = np.moveaxis(call.array(0), call.option("axis", 0), 0)
    return [np.asarray(part) for part in values]


@evaluator(BuiltinOperator.CONCATENATION)
def concatenation(call: GraphCall) -> Outputs:
    """Evaluate CONCATENATION, if the quantization of inputs and output is the same."""
    output = call.output()
    for i in range(len(call.operator.inputs)):
        tensor = call.tensor(i)
        if (tensor.scales, tensor.zero_points) != (output.scales, output.zero_points):
            return None
    if call.option("fused_activation_function", 0):
        return None
    return [np.concatenate(call.arrays(), call.option("axis", 0))]


@evaluator(BuiltinOperator.GATHER)
def gather(call: GraphCall) -> Outputs:
    """Evaluate GATHER without batch dimensions."""
    if call.option("batch_dims", 0) or call.array(1).min(initial=0) < 0:
        return None
    return [np.take(call.array(0), call.array(1), call.option("axis", 0))]


@evaluator(BuiltinOperator.TRANSPOSE)
def transpose(call: GraphCall) -> Outputs:
    """Evaluate TRANSPOSE."""
    return [call.array(0).transpose(call.integers(1))]


@evaluator(BuiltinOperator.TILE)
def tile(call: GraphCall) -> Outputs:
    """Evaluate TILE."""
    if call.array(0).size * prod(call.integers(1)) > MAX_ELEMENTS:
        return None
    return [np.tile(call.array(0), call.integers(1))]


@evaluator(BuiltinOperator.REVERSE_V2)
def reverse(call: GraphCall) -> Outputs:
    """Evaluate REVERSE_V2."""
    return [np.flip(call.array(0), tuple(call.integers(1)))]


@evaluator(BuiltinOperator.SPLIT)
def split(call: GraphCall) -> Outputs:
    """Evaluate SPLIT. The axis is the first input."""
    return np.split(call.array(1), len(call.operator.outputs), call.integers(0)[0])


@evaluator(BuiltinOperator.SPLIT_V)
def split_v(call: GraphCall) -> Outputs:
    """Evaluate SPLIT_V with sizes that are all given."""
    sizes = call.integers(1)
    return None if min(sizes) < 0 else np.split(call.array(0), np.cumsum(sizes)[:-1], call.integers(2)[0])


@evaluator(BuiltinOperator.SELECT, BuiltinOperator.SELECT_V2)
def select(call: GraphCall) -> Outputs:
    """Evaluate SELECT and SELECT_V2. A condition of rank 1 of SELECT chooses rows, which numpy does not."""
    condition, chosen, other = call.arrays()
    if call.operator.code == BuiltinOperator.SELECT and condition.shape != chosen.shape:
        return None
    return [np.where(condition, chosen, other)]


@evaluator(BuiltinOperator.WHERE)
def where(call: GraphCall) -> Outputs:
    """Evaluate WHERE: the indexes of the elements that are not zero."""
    return [np.argwhere(call.array(0)).astype(call.dtype())]
