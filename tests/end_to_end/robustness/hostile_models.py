"""Models that are small as messages, and cost a service much memory."""

import numpy as np

from nnhal.v1 import enums_pb2, types_pb2
from tests.end_to_end.support.raw_client import F32, ModelWriter, RawSession, execute_request, prepare_request

_ELEMENTS = 400_000
_WINDOWS = 400


def prepare_large_output(raw: RawSession) -> bytes:
    """Return an encoded request of an execution with a response of 1.6 MB."""
    writer = ModelWriter()
    value = writer.input((2,))
    repeats = writer.constant(enums_pb2.OPERAND_TYPE_TENSOR_INT32, np.array([_ELEMENTS // 2], np.int32))
    writer.apply("TILE", [value, repeats], (_ELEMENTS,), last=True)
    *_, event = raw.device.PrepareModel(prepare_request(raw, writer.model), timeout=60)
    assert event.notify.prepared_model, event
    return execute_request(raw, event.notify.prepared_model, [np.ones(2, np.float32)]).SerializeToString()


def overlapping_windows() -> types_pb2.Model:
    """Return a model of 1.6 MB, whose constants are 400 windows of 1.6 MB on the same bytes: 640 MB if copied."""
    writer = ModelWriter()
    none, value = writer.number(0), writer.input((_ELEMENTS,))
    first = writer.constant(F32, np.ones(_ELEMENTS + _WINDOWS, np.float32))
    operands = writer.model.main.operands
    operands[first].dimensions[0] = _ELEMENTS
    operands[first].location.length = 4 * _ELEMENTS
    for number in range(_WINDOWS):
        operands.add().CopyFrom(operands[first])
        operands[-1].location.offset += 4 * number
        window = len(operands) - 1
        value = writer.apply("ADD", [value, window, none], (_ELEMENTS,), last=number == _WINDOWS - 1)
    return writer.model
