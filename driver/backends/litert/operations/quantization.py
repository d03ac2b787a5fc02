"""QUANTIZE, DEQUANTIZE and CAST."""

from driver.backends.litert.known import Refused
from driver.backends.litert.limits import ELEMENTWISE
from driver.backends.litert.lowering import FLOAT, Lowering, converter
from driver.backends.litert.writer import Spec
from nnhal.types import OperandType, OperationType

_BYTES = Spec("UINT8")


@converter(OperationType.QUANTIZE, limits=ELEMENTWISE)
def quantize(lower: Lowering) -> None:
    """To the output's scale."""
    lower.emit("QUANTIZE", [lower.input("input")], [lower.output()])


@converter(OperationType.DEQUANTIZE)
def dequantize(lower: Lowering) -> None:
    """To float32; the output may then be narrowed.

    XNNPACK never writes what it makes of a constant into an output, so that is copied.
    """
    out = lower.output()
    if lower.is_constant("input"):
        lower.copy(lower.real("input"), out)
    else:
        lower.emit("DEQUANTIZE", [lower.input("input")], [out])


@converter(OperationType.CAST, limits=ELEMENTWISE)
def cast(lower: Lowering) -> None:
    """Stored values as numbers. NNAPI clamps them to the new type's limits; the engine does not."""
    source, target = lower.type("input"), lower.type("output")
    if source == target:
        lower.copy(lower.input("input"), lower.output(like=lower.spec("input")))
        return
    x, spec = lower.input("input"), lower.spec("input")
    if source == OperandType.TENSOR_QUANT8_ASYMM:
        spec, stored = _BYTES, x
        x = lower.temporary(spec, lower.shape("input"))
        lower.copy(stored, x)
    if target == OperandType.TENSOR_QUANT8_ASYMM:
        _to_bytes(lower, x)
    elif target == OperandType.TENSOR_INT32 and spec == FLOAT:
        raise Refused("the engine does not clamp numbers that TENSOR_INT32 cannot hold", "TENSOR_FLOAT32 as output")
    elif spec == lower.spec("output"):
        lower.copy(x, lower.output())
    else:
        lower.emit("CAST", [x], [lower.output()])


def _to_bytes(lower: Lowering, x: int) -> None:
    """Numbers in 0..255, in whatever scale the output has."""
    spec = lower.writer.specs[x]
    low, high = (lower.constant(limit, spec) for limit in (0, 255))
    limited = lower.made("MINIMUM", [lower.made("MAXIMUM", [x, low]), high])
    plain = lower.temporary(_BYTES, lower.shape("output"))
    lower.emit("CAST", [limited], [plain])
    lower.copy(plain, lower.output())
