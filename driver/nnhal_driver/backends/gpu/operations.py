"""Operations that the GPU computes as NNAPI defines them, a part of those of CpuAcc.

The table was found with the test vectors and random operations. What is missing here, the accelerator refuses, or
computes in another way: for example it ignores the padding of batches, has no sign in powers and logarithms, and sines
within 2e-4 only.
"""

from collections.abc import Callable

from nnhal.types import OperandLifeTime, OperandType
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import OperationView
from nnhal_driver.backends.litert.inlining import is_submodel
from nnhal_driver.backends.litert.shape_analysis import StaticShapes, Unsupported, analyze_shapes

_MAX_RANK = 4

Check = Callable[[OperationView, StaticShapes], None]
"""Raises Unsupported if the accelerator does not take the arguments of an operation."""
_CHECKS: dict[int, Check] = {}


def _check(*types: int) -> Callable[[Check], Check]:
    """Register the check of some operations."""

    def register(check: Check) -> Check:
        _CHECKS.update(dict.fromkeys(types, check))
        return check

    return register


def check_gpu_operation(operation: OperationView) -> None:
    """Check that the GPU takes an operation that CpuAcc takes; of a region, its inputs and outputs.

    Raises:
        Unsupported: it does not.
    """
    known = analyze_shapes(operation.graph)
    if operation.index in known.constants.folded:
        return
    check = _accept if is_submodel(operation) else _CHECKS.get(operation.type)
    if check is None:
        raise Unsupported("the GPU accelerator has no such operation, or computes it in another way")
    operands = operation.graph.operands
    for index in (*operation.operation.inputs, *operation.operation.outputs):
        if index in known.constants or operands[index].lifetime == OperandLifeTime.NO_VALUE:
            continue
        if operands[index].type not in (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16):
            raise Unsupported("the GPU computes TENSOR_FLOAT32 and TENSOR_FLOAT16 only", "TENSOR_FLOAT32")
        if operands[index].type == OperandType.TENSOR_FLOAT16 and operation.type == Op.CAST:
            raise Unsupported("the GPU does not round to TENSOR_FLOAT16", "TENSOR_FLOAT32")
        shape = known.shapes.get(index)
        if shape is None or index in known.varying:
            raise Unsupported("the shapes are not known before execution", "operands with known dimensions")
        if not 1 <= len(shape) <= _MAX_RANK:
            raise Unsupported(f"the GPU computes ranks 1 to {_MAX_RANK}; this one is {len(shape)}")
    check(operation, known)


@_check(
    *(Op.ABS, Op.NEG, Op.EXP, Op.FLOOR),
    *(Op.SQRT, Op.RSQRT, Op.LOGISTIC, Op.TANH, Op.RELU, Op.RELU1, Op.RELU6, Op.ELU, Op.HARD_SWISH, Op.CAST),
    *(Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR, Op.INSTANCE_NORMALIZATION, Op.MAX_POOL_2D, Op.MEAN),
    *(Op.PACK, Op.BATCH_MATMUL),
)
def _accept(operation: OperationView, known: StaticShapes) -> None:
    """Accept all arguments."""


@_check(Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAXIMUM, Op.MINIMUM)
def _constant_tensors(operation: OperationView, known: StaticShapes) -> None:
    rank = len(known.shapes[operation.operation.outputs[0]])
    for index in operation.operation.inputs[:2]:
        shape = known.constants.array(index).shape if index in known.constants else ()
        if len(shape) == rank < _MAX_RANK and shape[0] > 1:
            raise Unsupported("the GPU uses only the first part of this constant", "a constant whose first size is 1")


@_check(Op.CONV_2D, Op.FULLY_CONNECTED)
def _weights(operation: OperationView, known: StaticShapes) -> None:
    if any(index not in known.constants for index in operation.operation.inputs[1:3]):
        raise Unsupported("the GPU needs constant weights", "constant weights and bias")


@_check(Op.DEPTHWISE_CONV_2D)
def _channels(operation: OperationView, known: StaticShapes) -> None:
    _weights(operation, known)
    _, height, width, channels = known.shapes[operation.operation.inputs[1]]
    multiplier = _constant(operation, known, "depth_multiplier")
    if height == width == 1 and 1 < multiplier < channels:
        raise Unsupported(
            "the GPU confuses the channels of a filter of 1 x 1", "a larger filter, or depth multiplier 1"
        )


@_check(Op.PRELU)
def _slopes(operation: OperationView, known: StaticShapes) -> None:
    """Accept one constant slope for each channel."""
    index = operation.operation.inputs[1]
    if index not in known.constants or sum(size != 1 for size in known.shapes[index][:-1]):
        raise Unsupported("the GPU needs a constant slope for each channel", "constant slopes")
    _require_rank(operation, known, _MAX_RANK)


@_check(Op.DEPTH_TO_SPACE, Op.SPACE_TO_DEPTH)
def _blocks(operation: OperationView, known: StaticShapes) -> None:
    if known.shapes[operation.operation.inputs[0]][0] != 1 or _constant(operation, known, "block_size") == 1:
        raise Unsupported("the GPU moves blocks of one batch only, and of more than one element", "batch 1")


@_check(Op.REDUCE_SUM, Op.REDUCE_MAX)
def _reduction(operation: OperationView, known: StaticShapes) -> None:
    values, axes = operation.operation.inputs[:2]
    rank = len(known.shapes[values])
    if len({int(axis) % rank for axis in known.constants.array(axes).reshape(-1)}) == rank:
        raise Unsupported("the GPU does not reduce a tensor to one element", "fewer axes")


@_check(Op.AVERAGE_POOL_2D)
def _window(operation: OperationView, known: StaticShapes) -> None:
    sides = ("padding_left", "padding_right", "padding_top", "padding_bottom")
    if any(_constant(operation, known, side) for side in sides):
        raise Unsupported("the GPU divides by another number of elements at explicit padding", "implicit padding")


@_check(Op.SOFTMAX)
def _scale(operation: OperationView, known: StaticShapes) -> None:
    rank = _require_rank(operation, known, 2)
    if _constant(operation, known, "beta") != 1.0 or _constant(operation, known, "axis", -1) not in (-1, rank - 1):
        raise Unsupported("the GPU has beta 1 and the last axis only", "beta 1 and the last axis")


@_check(Op.TRANSPOSE, Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS)
def _movement(operation: OperationView, known: StaticShapes) -> None:
    _require_rank(operation, known, 2)


@_check(Op.CONCATENATION)
def _pieces(operation: OperationView, known: StaticShapes) -> None:
    _require_rank(operation, known, 2)
    if len(operation.operation.inputs) < 3:
        raise Unsupported("the GPU does not join a single tensor", "several tensors")


@_check(Op.PAD, Op.PAD_V2)
def _padding(operation: OperationView, known: StaticShapes) -> None:
    _require_rank(operation, known, _MAX_RANK)
    paddings = operation.operation.inputs[1]
    if paddings not in known.constants or known.constants.array(paddings)[0].any():
        raise Unsupported("the GPU does not pad batches", "constant paddings of the other dimensions")


def _require_rank(operation: OperationView, known: StaticShapes, least: int) -> int:
    """Return the rank of the first input.

    Raises:
        Unsupported: an input or output has a rank below `least`.
    """
    values = (operation.operation.inputs[0], operation.operation.outputs[0])
    ranks = [len(known.shapes[index]) for index in values]
    if min(ranks) < least:
        raise Unsupported(f"the GPU needs rank {least} for this operation", f"rank {least}")
    return ranks[0]


def _constant(operation: OperationView, known: StaticShapes, name: str, default: float = 0) -> float:
    """Return the value of a scalar argument.

    Raises:
        Unsupported: it is not constant.
    """
    if name not in operation.positions:
        return default
    index = operation.positions[name]
    if index not in known.constants:
        raise Unsupported(f"the GPU needs a constant {name}", f"a constant {name}")
    return float(known.constants.array(index).reshape(-1)[0])


def accepted_operations() -> frozenset[int]:
    """Return the operations that the GPU takes with some arguments."""
    return frozenset(_CHECKS)
