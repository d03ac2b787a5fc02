"""Conversion between element types: QUANTIZE, DEQUANTIZE, CAST."""

from nnhal.operations.signature import Arguments, signature
from nnhal.types import OperationType


def _check_same_dimensions(arguments: Arguments) -> str | None:
    """Check that input and output have equal dimensions, if both ranks and all dimensions of the output are known."""
    input_, output = arguments["input"].dimensions, arguments["output"].dimensions
    if input_ and output and 0 not in output and input_ != output:
        return f"input has dimensions {list(input_)}, output {list(output)}; they must be the same"
    return None


signature(
    OperationType.QUANTIZE,
    inputs="input:F",
    outputs="output:Q",
    types="""
        F                              Q
        TENSOR_FLOAT32|TENSOR_FLOAT16  TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED
    """,
    elementwise=True,
)

signature(
    OperationType.DEQUANTIZE,
    inputs="input:Q",
    outputs="output:F",
    types="""
        Q                                                  F
        TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED     TENSOR_FLOAT32|TENSOR_FLOAT16
        TENSOR_QUANT8_SYMM|TENSOR_QUANT8_SYMM_PER_CHANNEL  TENSOR_FLOAT32|TENSOR_FLOAT16
    """,
    ranks={"input": (1, 4)},
    elementwise=True,
)

_NUMBERS = "TENSOR_FLOAT16|TENSOR_FLOAT32|TENSOR_INT32|TENSOR_QUANT8_ASYMM"

signature(
    OperationType.CAST,
    inputs="input:A",
    outputs="output:B",
    types=f"""
        A                           B
        {_NUMBERS}                  {_NUMBERS}
        TENSOR_BOOL8                TENSOR_BOOL8
        TENSOR_QUANT16_ASYMM        TENSOR_QUANT16_ASYMM
        TENSOR_QUANT16_SYMM         TENSOR_QUANT16_SYMM
        TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT8_ASYMM_SIGNED
        TENSOR_QUANT8_SYMM          TENSOR_QUANT8_SYMM
    """,
    checks=[_check_same_dimensions],
    elementwise=True,
)
