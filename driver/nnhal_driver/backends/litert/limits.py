"""Limits of the engine's kernels: shapes and scales. Outside of them some kernels crash or overflow unchecked."""

from dataclasses import dataclass
from math import inf, prod

from nnhal.types import Operand, OperandType, SymmPerChannelQuantParams
from nnhal_driver.backends.litert.shape_analysis import Shapes, StaticCall, Unsupported
from nnhal_driver.backends.litert.submodel.kernel_faults import max_depthwise_channels
from nnhal_driver.operations.multiply_adds import MULTIPLY_ADDS

_MAX_RANK = 8
"""Largest rank in the engine's RESHAPE."""
_MAX_WINDOW = 2**15
"""Largest stride and extent of a window: the engine adds them in 32 bits."""

_MAX_MAPPED = 2**25
"""Largest number of elements of an operation without multiply-adds. The engine cannot stop in an operation. For larger
ones CpuRef takes no longer: memory bounds both, and the engine copies inputs and outputs."""

_SCALES = (2.0**-24, 2.0**16)
_MAX_SCALE_RATIO = 2.0**8
"""Largest ratio of an input's scale, or of a product of two, to the output's."""
_QUANTIZED_TYPES = (
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL,
)


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """Limits of one operation, registered with its converter.

    Attributes:
        rank: largest rank of its arguments.
        product_of: names of two inputs if the output is their product.
        output_copies_first: whether the output may also be the first of the two.
        has_own_scale: whether the output's scale is independent of the inputs'.
        max_input_scale: largest scale of `input`.
    """

    rank: int = 4
    product_of: tuple[str, str] | None = None
    output_copies_first: bool = False
    has_own_scale: bool = False
    max_input_scale: float = inf


DEFAULT_LIMITS = KernelLimits()
ELEMENTWISE_LIMITS = KernelLimits(rank=_MAX_RANK)
"""Limits of operations that the engine computes element by element."""


def check_shapes(call: StaticCall, shapes: Shapes, limits: KernelLimits) -> None:
    """Check the shapes of all arguments.

    Raises:
        Unsupported: an argument has no elements, too many, or too high a rank; or the operation only moves or maps
            very many elements.
    """
    total = sum(prod(shapes.get(position, ())) for position in call.view.positions.values())
    if total > _MAX_MAPPED and call.view.type not in MULTIPLY_ADDS:
        raise Unsupported(f"its tensors have {total:,} elements, which CpuRef computes in blocks", f"{_MAX_MAPPED:,}")
    for name, position in call.view.positions.items():
        shape = shapes.get(position, ())
        if 0 in shape:
            raise Unsupported(f"{name} has no elements")
        if len(shape) > limits.rank:
            raise Unsupported(f"{name} has rank {len(shape)}", f"rank {limits.rank} or less")
        if prod(shape) * 4 >= 2**31:
            raise Unsupported(f"{name} has {prod(shape)} elements; the engine counts bytes in 32 bits")


def check_steps(*sizes: int) -> None:
    """Check strides and windows, which could overflow in the engine.

    Raises:
        Unsupported: a value is too large.
    """
    if max(sizes) > _MAX_WINDOW:
        raise Unsupported(f"a stride or window has {max(sizes)} cells", f"at most {_MAX_WINDOW}")


def check_depthwise_channels(channels: int, type_: str, *, constant: bool) -> None:
    """Check the number of output channels of a depthwise convolution with a filter of a type of the engine.

    Raises:
        Unsupported: there are too many, and filter or bias are not constant.
    """
    if not constant and channels > (limit := max_depthwise_channels(type_)):
        raise Unsupported(
            f"the filter has {channels} channels, and filter or bias are not constant",
            f"at most {limit} channels, or a constant filter and bias",
        )


def check_scales(call: StaticCall, limits: KernelLimits) -> None:
    """Check the scales of 8-bit tensors. No real model exceeds the limits.

    Raises:
        Unsupported: a scale, or a ratio of scales, is out of range.
    """
    arguments = call.view.arguments
    assert arguments is not None
    scales = {name: _scales(call.operand(name)) for name in (*arguments.inputs, *arguments.outputs)}
    for name, values in scales.items():
        # unused channels of real models have scales down to 1e-11
        if values and not _SCALES[0] <= max(values) <= _SCALES[1]:
            raise Unsupported(f"{name} has the scale {max(values):g}", f"a scale in {_SCALES[0]:g}..{_SCALES[1]:g}")
    if limits.max_input_scale < inf and max(scales["input"], default=0.0) > limits.max_input_scale:
        raise Unsupported(
            f"input has the scale {scales['input'][0]:g}", f"a scale of at most {limits.max_input_scale:g}"
        )
    if limits.has_own_scale:
        return
    largest = max((max(scales[name]) for name in arguments.inputs if scales[name]), default=0.0)
    if limits.product_of:
        first, second = (max(scales[name], default=0.0) for name in limits.product_of)
        largest = max(first * second, first if limits.output_copies_first else 0)
    for name in arguments.outputs:
        if scales[name] and largest > _MAX_SCALE_RATIO * min(scales[name]):
            raise Unsupported(
                f"{name} has the scale {min(scales[name]):g}, the inputs give {largest:g}", "a larger scale"
            )


def _scales(operand: Operand) -> tuple[float, ...]:
    """Return all scales of a quantized tensor."""
    if operand.type not in _QUANTIZED_TYPES:
        return ()
    params = operand.extra_params
    return params.scales if isinstance(params, SymmPerChannelQuantParams) else (operand.scale,)
