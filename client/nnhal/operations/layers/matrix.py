"""Matrix products: FULLY_CONNECTED, BATCH_MATMUL."""

from math import prod

from nnhal.operations.signature import Arguments, signature
from nnhal.types import OperationType


def _check_sizes(arguments: Arguments) -> str | None:
    """Check the sizes of input, weights and bias, if all ranks are known. An unknown input dimension counts as 0."""
    input_, weights, bias = (arguments[name].dimensions for name in ("input", "weights", "bias"))
    if not (input_ and weights and bias):
        return None
    if weights[1] and prod(input_) % weights[1]:
        return f"input has {prod(input_)} elements, not a multiple of the {weights[1]} columns of weights"
    if weights[0] and bias[0] and weights[0] != bias[0]:
        return f"weights has {weights[0]} units, bias {bias[0]}"
    return None


signature(
    OperationType.FULLY_CONNECTED,
    inputs="input:T weights:T bias:B activation",
    types="""
        T                           B
        TENSOR_FLOAT32              TENSOR_FLOAT32
        TENSOR_FLOAT16              TENSOR_FLOAT16
        TENSOR_QUANT8_ASYMM         TENSOR_INT32
        TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_INT32
    """,
    ranks={"input": (2, 4), "weights": 2, "bias": 1},
    checks=[_check_sizes],
    batchwise=True,
)

signature(
    OperationType.BATCH_MATMUL,
    inputs="x:T y:T adj_x:BOOL adj_y:BOOL",
    types="""
        T
        TENSOR_FLOAT32
        TENSOR_FLOAT16
        TENSOR_QUANT8_ASYMM_SIGNED
        TENSOR_INT32
    """,
)
