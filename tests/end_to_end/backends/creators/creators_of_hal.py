"""Creators for operations of the HAL."""

import numpy as np

from nnhal_backend.v1 import OperandType, OperationType, OperationView, Support, Workload

from .creators_base import Creators


@Creators.creator(OperationType.RELU)
def relu(operation: OperationView) -> Workload | Support:
    """Return a RELU that adds 100, which tells it from other backends."""
    if operation.operand("input").type != OperandType.TENSOR_FLOAT32:
        return Support("only TENSOR_FLOAT32 is supported")
    return lambda call: call.array("input").clip(0) + np.float32(100)
