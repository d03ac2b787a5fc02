"""Shape and order of dimensions: RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE, RANK."""

from nnhal.operations.signature import FLOATS_INT32_QUANT8, FLOATS_QUANT8, signature
from nnhal.types import OperationType

signature(
    OperationType.RESHAPE,
    inputs="input:T shape:SHAPE",
    types=FLOATS_INT32_QUANT8,
    ranks={"input": (1, 4)},
    quantization="input",
)

signature(
    OperationType.EXPAND_DIMS,
    inputs="input:T axis",
    types=FLOATS_INT32_QUANT8,
    quantization="input",
)

for _type, _axes in ((OperationType.SQUEEZE, "axes"), (OperationType.TRANSPOSE, "perm")):
    signature(
        _type,
        inputs=f"input:T {_axes}:SHAPE?",
        types=FLOATS_QUANT8,
        ranks={"input": (1, 4)},
        quantization="input",
    )

signature(
    OperationType.RANK,
    inputs="input:T",
    outputs="output",
    types="""
        T
        TENSOR_FLOAT32|TENSOR_FLOAT16|TENSOR_INT32|TENSOR_BOOL8
        TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED|TENSOR_QUANT8_SYMM|TENSOR_QUANT8_SYMM_PER_CHANNEL
        TENSOR_QUANT16_SYMM|TENSOR_QUANT16_ASYMM
    """,
)
