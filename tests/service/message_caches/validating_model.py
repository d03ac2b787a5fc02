"""Prepared model that counts validations, and messages for it."""

import numpy as np

from nnhal import wire
from nnhal.errors import invalid_argument
from nnhal.types import (
    DataLocation,
    ExecutionConfig,
    Memory,
    Operand,
    OperandType,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
)
from nnhal.v1 import types_pb2
from nnhal_driver.execution.request_binding import ValidRequest

OPERAND = Operand(OperandType.TENSOR_FLOAT32, (2,))
PLAIN = ExecutionConfig()


class ValidatingModel:
    """Takes the place of a prepared model with 8 bytes of input.

    Attributes:
        validations: number of requests that were validated.
    """

    def __init__(self) -> None:
        self.validations = 0

    def validate_execution(self, request: Request, config: ExecutionConfig) -> ValidRequest:
        """Reject inputs of another length."""
        self.validations += 1
        if request.inputs[0].location.length != 8:
            raise invalid_argument("too long or too short")
        return ValidRequest.bind(request, [OPERAND], [OPERAND])


def request_message(value: float, length: int = 8, first: RequestMemoryPool | None = None) -> types_pb2.Request:
    """Return a request with one input of two equal values and one returned output."""
    pool = Memory.of(np.full(2, value, np.float32)) if first is None else first
    inputs = (RequestArgument(location=DataLocation(0, 0, length)),)
    outputs = (RequestArgument(location=DataLocation(1)),)
    return wire.request_message(Request(inputs, outputs, (pool, ReturnedPool())))
