"""Matrix products, Fourier transforms, normalizations and softmax."""

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, elements, rule, scale
from nnhal_driver.backends.litert.submodel.rules.images import check_weights


@rule(
    "FULLY_CONNECTED",
    types=[
        "f32 f32 f32? -> f32",
        "f16 f16 f16? -> f16",
        "f32 i8 f32? -> f32",
        "i8 i8 i32? -> i8|i16",
        "u8 u8 i32? -> u8",
        "i16 i8 i32|i64? -> i16",
    ],
    options="FullyConnectedOptions",
    per_channel=[1, 2],
)
def fully_connected(op: OperatorCheck) -> None:
    """Check the product of a matrix of inputs with weights."""
    shape, (channels, depth) = op.shape(0, low=1), op.shape(1, rank=2)
    op.activation()
    op.require(op.option("weights_format") == 0, f"weights_format is {op.option('weights_format')}; expected 0")
    op.require(op.operator.options["quant_spec"] is None, "quant_spec is set; it is not supported")
    op.require_range("quantized_bias_type", op.option("quantized_bias_type"), 0, 4)
    size = op.input(0).elements
    op.require(size % depth == 0, f"input 0 has {size} elements; expected a multiple of {depth}")
    check_weights(op, 0, channels)
    if op.option("keep_num_dims"):
        op.require(shape[-1] == depth, f"input 0 has shape {list(shape)}; the weights have {depth} columns")
    op.work += size * channels


@rule(
    "BATCH_MATMUL",
    types=["f32 f32 -> f32", "f16 f16 -> f16", "i8 i8 -> i8", "i8 i8 -> i32", "i16 i16 -> i16", "f32 i8 -> f32"],
    options="BatchMatMulOptions",
)
def batch_matmul(op: OperatorCheck) -> None:
    """Check products of matrices, whose batches broadcast."""
    first, second = op.shape(0, low=2, high=5), op.shape(1, low=2, high=5)
    inner = first[-2] if op.option("adj_x") else first[-1]
    other = second[-1] if op.option("adj_y") else second[-2]
    op.require(inner == other, f"shapes {list(first)} and {list(second)} cannot be multiplied")
    if op.input(0).type in ("INT8", "INT16") and op.outputs[0].type != "INT32":
        factor = scale(op.input(0)) * scale(op.input(1)) / scale(op.outputs[0])
        op.multiplier("product of the input scales / output scale", factor, 2.0**-31, 2.0**8)
    op.work += op.outputs[0].elements * inner


@rule("RFFT2D", types=["f32 i32 -> c64"], options="Rfft2dOptions", optional_options=True)
def rfft2d(op: OperatorCheck) -> None:
    """Check a Fourier transform of the last two dimensions. Their constant lengths are powers of two."""
    shape, (height, width) = op.shape(0, low=2), op.integers(1, 2)
    for name, length, low in (("height", height, 1), ("width", width, 2)):
        op.require_range(f"{name} of the transform", length, low, 2**24)
        op.require(length & (length - 1) == 0, f"{name} of the transform is {length}; expected a power of 2")
    op.bounded("the transform", height * (width + 2) * 2)
    op.work += elements(shape[:-2]) * height * width * (height * width).bit_length()


@rule("SOFTMAX", types=["T:f32|f16|i8|u8|i16 -> T", "i8 -> i16"], options="SoftmaxOptions")
def softmax(op: OperatorCheck) -> None:
    """Check a softmax. The kernel aborts if the scale times beta is too small."""
    op.shape(0, low=1)
    op.require_range("beta", op.float_option("beta"), 2.0**-10, 2.0**10)
    if op.is_quantized:
        op.multiplier("beta * input scale", op.float_option("beta") * scale(op.input(0)), 2.0**-16, 2.0**8)


@rule("LOG_SOFTMAX", types=["T:f32|i8|u8 -> T"], options="LogSoftmaxOptions", optional_options=True)
def log_softmax(op: OperatorCheck) -> None:
    """Check the logarithm of a softmax. The kernel aborts if the scale is too small."""
    if op.is_quantized:
        op.multiplier("input scale", scale(op.input(0)), 2.0**-16, 2.0**8)
    op.shape(0, low=1)


@rule("L2_NORMALIZATION", types=["T:f32|i8|u8 -> T"], options="L2NormOptions")
def l2_normalization(op: OperatorCheck) -> None:
    """Check a division by the Euclidean norm."""
    op.require(op.option("fused_activation_function") == 0, "fused_activation_function is set; expected 0")
    op.shape(0, low=1)


@rule("LOCAL_RESPONSE_NORMALIZATION", types=["f32 -> f32"], options="LocalResponseNormalizationOptions")
def local_response_normalization(op: OperatorCheck) -> None:
    """Check a division by the norm of neighboring channels."""
    shape = op.shape(0, rank=4)
    op.require_range("radius", op.option("radius"), 0, 2**15)
    op.work += elements(shape) * min(2 * op.option("radius") + 1, shape[3])
