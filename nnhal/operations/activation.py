"""Activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX, LOG_SOFTMAX."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

_TYPES = """
    T
    TENSOR_FLOAT32
    TENSOR_FLOAT16
    TENSOR_QUANT8_ASYMM
    TENSOR_QUANT8_ASYMM_SIGNED
"""
_FLOATS = """
    T               S
    TENSOR_FLOAT32  FLOAT32
    TENSOR_FLOAT16  FLOAT16
"""

for _type in (
    OperationType.RELU,
    OperationType.RELU1,
    OperationType.RELU6,
    OperationType.LOGISTIC,
    OperationType.TANH,
):
    signature(_type, inputs="input:T", outputs="output:T", types=_TYPES, ranks={"input": (1, 4)})

signature(OperationType.HARD_SWISH, inputs="input:T", outputs="output:T", types=_TYPES)

signature(OperationType.ELU, inputs="input:T alpha:S", outputs="output:T", types=_FLOATS)

signature(OperationType.PRELU, inputs="input:T alpha:T", outputs="output:T", types=_TYPES)

signature(
    OperationType.SOFTMAX,
    inputs="input:T beta:S [axis]",
    outputs="output:T",
    types=_FLOATS + "TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED FLOAT32",
    ranks={"input": (1, 4)},
)

signature(OperationType.LOG_SOFTMAX, inputs="logits:T beta:S axis", outputs="output:T", types=_FLOATS)
