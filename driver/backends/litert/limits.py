"""Shapes and scales that the engine's kernels are made for. Beyond them some check nothing: they crash, or overflow."""

from math import prod

from driver.backends.litert.known import KnownCall, Refused, Shapes
from nnhal.types import Operand, OperandType, OperationType, SymmPerChannelQuantParams

_USUAL_RANK = 4
_HIGHEST_RANK = 8
"""The engine's RESHAPE takes no more."""
_RANKS = {
    OperationType.LOG_SOFTMAX: 5,
    **dict.fromkeys(
        (
            OperationType.ABS,
            OperationType.CAST,
            OperationType.ELU,
            OperationType.EXP,
            OperationType.EXPAND_DIMS,
            OperationType.FLOOR,
            OperationType.HARD_SWISH,
            OperationType.LOG,
            OperationType.LOGICAL_NOT,
            OperationType.NEG,
            OperationType.QUANTIZE,
            OperationType.RANK,
            OperationType.RESHAPE,
            OperationType.RSQRT,
            OperationType.SIN,
            OperationType.SQRT,
            OperationType.SQUEEZE,
        ),
        _HIGHEST_RANK,
    ),
}
"""Highest rank of the arguments of operations that take more than the usual one: they go element by element."""
_WIDEST = 2**15
"""Largest stride and extent of a window: the engine adds them up in 32 bits."""

_SCALES = (2.0**-24, 2.0**16)
_LARGEST_RATIO = 2.0**8
"""Of the scale of an input, or of a product of two, to that of the output."""
_PRODUCTS = {
    OperationType.BATCH_MATMUL: ("x", "y"),
    OperationType.CONV_2D: ("input", "filter"),
    OperationType.DEPTHWISE_CONV_2D: ("input", "filter"),
    OperationType.FULLY_CONNECTED: ("input", "weights"),
    OperationType.GROUPED_CONV_2D: ("input", "filter"),
    OperationType.MUL: ("input0", "input1"),
    OperationType.PRELU: ("input", "alpha"),
    OperationType.TRANSPOSE_CONV_2D: ("input", "filter"),
}
_OWN_SCALE = (OperationType.LOGISTIC, OperationType.TANH, OperationType.SOFTMAX, OperationType.L2_NORMALIZATION)
"""Operations whose output's scale has nothing to do with the input's."""
_STEEP = (OperationType.LOGISTIC, OperationType.TANH)
_STEEPEST = 2.0
"""Largest scale of an input of these: from 4 on NNAPI's integers know only the ends of the curve."""
_STORED = (
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL,
)


def hold_shapes(call: KnownCall, shapes: Shapes) -> None:
    """Refuses tensors without elements, with too many, or of too high a rank.

    Raises:
        Refused: naming the argument.
    """
    most = _RANKS.get(OperationType(call.view.type), _USUAL_RANK)
    for name, position in call.view.positions.items():
        shape = shapes.get(position, ())
        if 0 in shape:
            raise Refused(f"{name} has no elements")
        if len(shape) > most:
            raise Refused(f"{name} has rank {len(shape)}", f"rank {most} or less")
        if prod(shape) * 4 >= 2**31:
            raise Refused(f"{name} has {prod(shape)} elements; the engine counts bytes in 32 bits")


def hold_steps(*sizes: int) -> None:
    """Refuses strides and windows that could overflow in the engine.

    Raises:
        Refused: one is too large.
    """
    if max(sizes) > _WIDEST:
        raise Refused(f"a stride or window of {max(sizes)} cells", f"at most {_WIDEST}")


def hold_scales(call: KnownCall) -> None:
    """Refuses scales of 8-bit tensors that no real model has.

    Raises:
        Refused: naming the argument, or the ratio.
    """
    arguments = call.view.arguments
    assert arguments is not None
    scales = {name: _scales(call.operand(name)) for name in (*arguments.inputs, *arguments.outputs)}
    for name, each in scales.items():
        # dead channels of real models have scales down to 1e-11
        if each and not _SCALES[0] <= max(each) <= _SCALES[1]:
            raise Refused(f"{name} has the scale {max(each):g}", f"a scale in {_SCALES[0]:g}..{_SCALES[1]:g}")
    if call.view.type in _STEEP and max(scales["input"], default=0.0) > _STEEPEST:
        raise Refused(f"input has the scale {scales['input'][0]:g}", f"a scale of at most {_STEEPEST:g}")
    if call.view.type in _OWN_SCALE:
        return
    largest = max((max(scales[name]) for name in arguments.inputs if scales[name]), default=0.0)
    if call.view.type in _PRODUCTS:
        first, second = (max(scales[name], default=0.0) for name in _PRODUCTS[OperationType(call.view.type)])
        largest = max(first * second, first if call.view.type == OperationType.PRELU else 0)
    for name in arguments.outputs:
        if scales[name] and largest > _LARGEST_RATIO * min(scales[name]):
            raise Refused(f"{name} has the scale {min(scales[name]):g}, the inputs give {largest:g}", "a larger scale")


def _scales(operand: Operand) -> tuple[float, ...]:
    """All scales of a quantised tensor."""
    if operand.type not in _STORED:
        return ()
    params = operand.extra_params
    return params.scales if isinstance(params, SymmPerChannelQuantParams) else (operand.scale,)
