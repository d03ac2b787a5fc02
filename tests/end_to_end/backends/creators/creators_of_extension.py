"""Creators for operations of the extension."""

import numpy as np

from nnhal_backend.v1 import AnyArray, OperationCall, OperationView, Workload

from .creators_base import COMPACT, NAME, SCALE, Creators


@Creators.creator(SCALE, extension=NAME, shapes=lambda call: [call.shape("input0")])
def scale(operation: OperationView) -> Workload:
    """Multiply by a factor."""

    def run(call: OperationCall) -> AnyArray:
        return np.asarray(call.array("input0") * np.float32(int(call.array("input1").tobytes())))

    return run


@Creators.creator(COMPACT, extension=NAME)
def compact(operation: OperationView) -> Workload:
    """Leave out what is not positive. The shape of the output is known only after that."""

    def run(call: OperationCall) -> AnyArray:
        values = call.array("input0")
        return np.asarray(values[values > 0])

    return run
