"""Shapes and scales that the engine's kernels are made for. Beyond them some check nothing: they crash, or overflow."""

from dataclasses import dataclass
from math import inf, prod

from driver.backends.litert.known import KnownCall, Refused, Shapes
from nnhal.types import Operand, OperandType, SymmPerChannelQuantParams

_USUAL_RANK = 4
_HIGHEST_RANK = 8
"""The engine's RESHAPE takes no more."""
_WIDEST = 2**15
"""Largest stride and extent of a window: the engine adds them up in 32 bits."""

_SCALES = (2.0**-24, 2.0**16)
_LARGEST_RATIO = 2.0**8
"""Of the scale of an input, or of a product of two, to that of the output."""
_STORED = (
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What differs from operation to operation; said where its converter is registered.

    Attributes:
        rank: the highest of its arguments.
        product: names of two inputs whose product the output holds.
        copies: the output may also hold the first of the two as it is.
        own_scale: the output's scale has nothing to do with the inputs'.
        steepest: the largest scale of `input`.
    """

    rank: int = _USUAL_RANK
    product: tuple[str, str] | None = None
    copies: bool = False
    own_scale: bool = False
    steepest: float = inf


USUAL = Limits()
ELEMENTWISE = Limits(rank=_HIGHEST_RANK)
"""The engine goes through the elements, whatever their shape."""


def hold_shapes(call: KnownCall, shapes: Shapes, limits: Limits) -> None:
    """Refuses tensors without elements, with too many, or of too high a rank.

    Raises:
        Refused: naming the argument.
    """
    for name, position in call.view.positions.items():
        shape = shapes.get(position, ())
        if 0 in shape:
            raise Refused(f"{name} has no elements")
        if len(shape) > limits.rank:
            raise Refused(f"{name} has rank {len(shape)}", f"rank {limits.rank} or less")
        if prod(shape) * 4 >= 2**31:
            raise Refused(f"{name} has {prod(shape)} elements; the engine counts bytes in 32 bits")


def hold_steps(*sizes: int) -> None:
    """Refuses strides and windows that could overflow in the engine.

    Raises:
        Refused: one is too large.
    """
    if max(sizes) > _WIDEST:
        raise Refused(f"a stride or window of {max(sizes)} cells", f"at most {_WIDEST}")


def hold_scales(call: KnownCall, limits: Limits) -> None:
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
    if limits.steepest < inf and max(scales["input"], default=0.0) > limits.steepest:
        raise Refused(f"input has the scale {scales['input'][0]:g}", f"a scale of at most {limits.steepest:g}")
    if limits.own_scale:
        return
    largest = max((max(scales[name]) for name in arguments.inputs if scales[name]), default=0.0)
    if limits.product:
        first, second = (max(scales[name], default=0.0) for name in limits.product)
        largest = max(first * second, first if limits.copies else 0)
    for name in arguments.outputs:
        if scales[name] and largest > _LARGEST_RATIO * min(scales[name]):
            raise Refused(f"{name} has the scale {min(scales[name]):g}, the inputs give {largest:g}", "a larger scale")


def _scales(operand: Operand) -> tuple[float, ...]:
    """All scales of a quantised tensor."""
    if operand.type not in _STORED:
        return ()
    params = operand.extra_params
    return params.scales if isinstance(params, SymmPerChannelQuantParams) else (operand.scale,)
