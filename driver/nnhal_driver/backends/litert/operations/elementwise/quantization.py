"""Converters of QUANTIZE, DEQUANTIZE and CAST."""

from nnhal.tflite_schema.packing import TensorSpec
from nnhal.types import OperandType, OperationType
from nnhal_driver.backends.litert.limits import ELEMENTWISE_LIMITS
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering, converter
from nnhal_driver.backends.litert.shape_analysis import Unsupported

_BYTES = TensorSpec("UINT8")


@converter(OperationType.QUANTIZE, limits=ELEMENTWISE_LIMITS)
def quantize(lower: Lowering) -> None:
    """Emit the same operator. After a DEQUANTIZE, the pair becomes one QUANTIZE, as it was in a .tflite file.

    TFLite requantizes with integers. Its result may differ by one step from that of the pair, which computes in
    float32.
    """
    source, target = lower.input("input"), lower.output()
    if not (lower.has_readers("input", 1) and lower.writer.fuse_requantization(source, target)):
        lower.emit("QUANTIZE", [source], [target])


@converter(OperationType.DEQUANTIZE)
def dequantize(lower: Lowering) -> None:
    """Dequantize to float32. The output may then be converted to float16.

    XNNPACK does not write a dequantized constant into an output, so a constant is copied.
    """
    out = lower.output()
    if lower.is_constant("input"):
        lower.copy(lower.real_values("input"), out)
    else:
        lower.emit("DEQUANTIZE", [lower.input("input")], [out])


@converter(OperationType.CAST, limits=ELEMENTWISE_LIMITS)
def cast(lower: Lowering) -> None:
    """Convert stored values. NNAPI clamps them to the new type's limits, the engine does not."""
    source, target = lower.type("input"), lower.type("output")
    if source == target:
        lower.copy(lower.input("input"), lower.output(like=lower.spec("input")))
        return
    x, spec = lower.input("input"), lower.spec("input")
    if source == OperandType.TENSOR_QUANT8_ASYMM:
        spec, stored = _BYTES, x
        x = lower.writer.tensor(spec, lower.shape("input"))
        lower.copy(stored, x)
    if target == OperandType.TENSOR_QUANT8_ASYMM:
        _to_bytes(lower, x)
    elif target == OperandType.TENSOR_INT32 and spec == FLOAT:
        raise Unsupported("the engine does not clamp numbers that TENSOR_INT32 cannot hold", "TENSOR_FLOAT32 as output")
    elif spec == lower.spec("output"):
        lower.copy(x, lower.output())
    else:
        lower.emit("CAST", [x], [lower.output()])


def _to_bytes(lower: Lowering, x: int) -> None:
    """Clamp to 0..255 and store as bytes, ignoring the output's scale."""
    spec = lower.writer.specs[x]
    low, high = (lower.constant(limit, spec) for limit in (0, 255))
    limited = lower.apply("MINIMUM", [lower.apply("MAXIMUM", [x, low]), high])
    unscaled = lower.writer.tensor(_BYTES, lower.shape("output"))
    lower.emit("CAST", [limited], [unscaled])
    lower.copy(unscaled, lower.output())
