"""Activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU, SOFTMAX, LOG_SOFTMAX."""

from collections.abc import Mapping

from nnhal.operations.signature import (
    FLOATS_QUANT8,
    FLOATS_WITH_SCALARS,
    SIGNED_UNIT_RANGE,
    UNIT_RANGE,
    Quantization,
    signature,
)
from nnhal.types import OperationType

_QUANTIZATION: Mapping[OperationType, Quantization] = {
    OperationType.RELU: "input",
    OperationType.RELU1: "input",
    OperationType.RELU6: "input",
    OperationType.LOGISTIC: UNIT_RANGE,
    OperationType.TANH: SIGNED_UNIT_RANGE,
}

for _type, _quantization in _QUANTIZATION.items():
    signature(
        _type,
        inputs="input:T",
        types=FLOATS_QUANT8,
        ranks={"input": (1, 4)},
        quantization=_quantization,
        elementwise=True,
    )

signature(OperationType.HARD_SWISH, inputs="input:T", types=FLOATS_QUANT8, elementwise=True)

signature(OperationType.ELU, inputs="input:T alpha:S", types=FLOATS_WITH_SCALARS, elementwise=True)

signature(OperationType.PRELU, inputs="input:T alpha:T", types=FLOATS_QUANT8, elementwise=True)

signature(
    OperationType.SOFTMAX,
    inputs="input:T beta:S [axis]",
    types=FLOATS_WITH_SCALARS + "TENSOR_QUANT8_ASYMM|TENSOR_QUANT8_ASYMM_SIGNED FLOAT32",
    ranks={"input": (1, 4)},
    quantization=UNIT_RANGE,
)

signature(OperationType.LOG_SOFTMAX, inputs="logits:T beta:S axis", types=FLOATS_WITH_SCALARS)
