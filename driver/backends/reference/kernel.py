"""Registration of kernels, and what they share.

    @kernel(OperationType.RESHAPE)
    def reshape(call: Call) -> AnyArray:
        return call.array("input").reshape(...)

A kernel gives its output (or a list of outputs) in the dtype of the declared type. Its arguments have passed the shape
rule, so it need not check them again. Kernels never write to their inputs. Infinities and NaN are results like others:
numpy does not warn of them while a kernel runs.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from driver.backends.per_operation import Workload
from driver.operations.call import Call
from nnhal.types import DTYPES, AnyArray, FusedActivationFunc, OperandType

Floats = NDArray[np.float32]

KERNELS: dict[int, Workload] = {}
"""Every registered kernel, by operation type."""

_MAX = np.finfo(np.float32).max
FLOAT_BOUNDS: dict[int, tuple[np.float32, np.float32]] = {
    FusedActivationFunc.NONE: (-_MAX, _MAX),
    FusedActivationFunc.RELU: (np.float32(0), _MAX),
    FusedActivationFunc.RELU1: (np.float32(-1), np.float32(1)),
    FusedActivationFunc.RELU6: (np.float32(0), np.float32(6)),
}
"""Smallest and largest value after an activation."""


def kernel(*types: int) -> Callable[[Workload], Workload]:
    """Registers the kernel of one or more operation types."""

    def register(function: Workload) -> Workload:
        quiet = np.errstate(all="ignore")(function)
        for type_ in types:
            assert type_ not in KERNELS, f"operation type {type_} has two kernels"
            KERNELS[type_] = quiet
        return function

    return register


def is_quantized(call: Call, name: str) -> bool:
    """Whether an argument holds 8-bit or 16-bit quantised values. A scale of TENSOR_INT32 means nothing."""
    operand = call.operand(name)
    return operand.type != OperandType.TENSOR_INT32 and (operand.scale != 0 or call.channel_quant(name) is not None)


def nhwc(call: Call) -> AnyArray:
    """The input image as [batches, height, width, channels], whatever its layout."""
    image = call.array("input")
    return image.transpose(0, 2, 3, 1) if call.flag("layout") else image


def laid_out(call: Call, image: AnyArray) -> AnyArray:
    """A result [batches, height, width, channels] in the layout of the data."""
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2)) if call.flag("layout") else image


def floats(call: Call, name: str) -> Floats:
    """A float argument, widened to float32."""
    return call.array(name).astype(np.float32, copy=False)


def activated(call: Call, value: Floats) -> AnyArray:
    """The fused activation, and narrowing to the output's type. `value` is overwritten."""
    value.clip(*FLOAT_BOUNDS[call.activation()], out=value)
    return narrowed(call, value)


def narrowed(call: Call, value: Floats, like: str = "output") -> AnyArray:
    """A float32 result in the type of `like`; overflow of half floats gives infinity."""
    return value.astype(DTYPES[call.operand(like).type], copy=False)


def tabulated(call: Call, name: str, function: Callable[[AnyArray], AnyArray]) -> AnyArray:
    """`function` of each stored 8-bit value of an argument, worked out once for all 256 values.

    It may depend on nothing but the value and the operands' quantisation.
    """
    stored = call.array(name)
    table = call.once(f"table of {name}", lambda: function(np.arange(256, dtype=np.uint8).view(stored.dtype)))
    taken: AnyArray = table[stored.view(np.uint8)]
    return taken
