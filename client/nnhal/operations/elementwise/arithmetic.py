"""Arithmetic of two tensors with broadcasting: ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW."""

import numpy as np

from nnhal.operations.signature import FLOATS, FLOATS_INT32, FLOATS_INT32_QUANT8, Arguments, signature
from nnhal.types import OperandType, OperationType

_QUANTIZED = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)
_RANKS = {"input0": (1, 4), "input1": (1, 4)}


def _check_output_scale(arguments: Arguments) -> str | None:
    """Check that the output scale of a quantized product exceeds scale0 * scale1, in float32."""
    first, second, output = (arguments[name].scale for name in ("input0", "input1", "output"))
    with np.errstate(over="ignore"):
        product = float(np.float32(first * second))
    if arguments["output"].type in _QUANTIZED and not output > product:
        return f"output has scale {output:g}; it must be greater than scale0 * scale1 = {product:g}"
    return None


for _type in (OperationType.ADD, OperationType.SUB):
    signature(
        _type,
        inputs="input0:T input1:T activation",
        types=FLOATS_INT32_QUANT8,
        ranks=_RANKS,
        elementwise=True,
    )

signature(
    OperationType.MUL,
    inputs="input0:T input1:T activation",
    types=FLOATS_INT32_QUANT8,
    ranks=_RANKS,
    scale_checks=[_check_output_scale],
    elementwise=True,
)

signature(
    OperationType.DIV,
    inputs="dividend:T divisor:T activation",
    types=FLOATS_INT32,
    ranks={"dividend": (1, 4), "divisor": (1, 4)},
    elementwise=True,
)

for _type in (OperationType.MAXIMUM, OperationType.MINIMUM):
    signature(_type, inputs="input0:T input1:T", types=FLOATS_INT32_QUANT8, elementwise=True)

signature(
    OperationType.POW,
    inputs="base:T exponent:T",
    types=FLOATS,
    elementwise=True,
)
