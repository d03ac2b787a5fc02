"""Faults in the results of operations. They are injected by changes to models and data in transit."""

from typing import Any

import numpy as np

from nnhal.types import OperandLifeTime, OperandType, OperationType
from tests.tools.conformance.selftest.fault import EXECUTE, PREPARE, fault, remember_models
from tests.tools.conformance.selftest.proxy import ProxyCall

_QUANT8 = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


@fault("GEN-18", on=(PREPARE,), select=("quantize_dequantize",))
def requantization_off_by_one(call: ProxyCall, request: Any) -> Any:
    """Add one quantization step to every quantized result that stays inside the model.

    Each operation that writes such a result is followed by an ADD of one step with the scale of the result.
    """
    model = request.model
    operations = list(model.main.operations)
    del model.main.operations[:]
    moved: dict[int, int] = {}
    for operation in operations:
        operation.inputs[:] = [moved.get(i, i) for i in operation.inputs]
        model.main.operations.append(operation)
        for i in operation.outputs:
            operand = model.main.operands[i]
            if operand.type in _QUANT8 and operand.lifetime == OperandLifeTime.TEMPORARY_VARIABLE:
                moved[i] = _one_step_up(model, i)
    return call.forward(request)


def _one_step_up(model: Any, i: int) -> int:
    """Add one step to operand i, and return the index of the sum."""
    main = model.main
    result = main.operands.add()
    result.CopyFrom(main.operands[i])
    step = main.operands.add(type=result.type, dimensions=[1], scale=result.scale, zero_point=result.zero_point)
    signed = result.type == OperandType.TENSOR_QUANT8_ASYMM_SIGNED
    _constant(model, step, (result.zero_point + 1).to_bytes(1, "little", signed=signed))
    activation = main.operands.add(type=int(OperandType.INT32))
    _constant(model, activation, bytes(4))
    last = len(main.operands) - 1
    main.operations.add(
        type=int(OperationType.ADD),
        inputs=[i, last - 1, last],
        outputs=[last - 2],
    )
    return last - 2


@fault("GEN-18", on=(PREPARE,), select=("conv_float_same",))
def same_padding_on_the_wrong_side(call: ProxyCall, request: Any) -> Any:
    """Put the larger half of an odd SAME padding of CONV_2D first instead of last.

    Explicit padding replaces the padding scheme. Only models with layout NHWC and without dilation are affected.
    """
    model = request.model
    for operation in model.main.operations:
        if operation.type == OperationType.CONV_2D and len(operation.inputs) in (7, 8):
            _, _, _, scheme, *strides = operation.inputs[:6]
            if _scalar(model, scheme) == 1:
                sides = [
                    side for axis in (1, 0) for side in _swapped_padding(model, operation, axis, strides[1 - axis])
                ]
                operation.inputs[3:4] = [_int32(model, side) for side in sides]
    return call.forward(request)


def _swapped_padding(model: Any, operation: Any, axis: int, stride_operand: int) -> tuple[int, int]:
    """Return the padding before and after the data. Axis 0 is the height, axis 1 the width."""
    source, kernel = (model.main.operands[i].dimensions[1 + axis] for i in operation.inputs[:2])
    stride = _scalar(model, stride_operand)
    total = max((-(-source // stride) - 1) * stride + kernel - source, 0)
    return total - total // 2, total // 2


@fault("GEN-18", on=(EXECUTE,))
def last_element_not_written(call: ProxyCall, request: Any) -> Any:
    """Leave the last element of each output at zero."""
    result = call.forward(request)
    for output in result.returned:
        output.inline = output.inline[:-1] + b"\0" if output.inline[-1:] != b"\0" else output.inline[:-1] + b"\x55"
    return result


@fault("NNHAL-27", on=(PREPARE, EXECUTE))
def nan_dropped(call: ProxyCall, request: Any) -> Any:
    """Replace NaN in the outputs by 0."""
    if call.streams_responses:
        return remember_models(call, request)
    result = call.forward(request)
    outputs = call.state[request.prepared_model].outputs if request.prepared_model in call.state else []
    for operand, output in zip(outputs, result.returned, strict=False):
        if operand.type == OperandType.TENSOR_FLOAT32 and output.WhichOneof("data") == "inline":
            values = np.frombuffer(output.inline, np.float32)
            output.inline = np.where(np.isnan(values), np.float32(0), values).tobytes()
    return result


def _scalar(model: Any, i: int) -> int:
    """Return the value of an INT32 constant, or 0 if the operand is not a constant."""
    operand = model.main.operands[i]
    if operand.lifetime != OperandLifeTime.CONSTANT_COPY:
        return 0
    return int.from_bytes(model.operand_values[operand.location.offset :][:4], "little", signed=True)


def _int32(model: Any, value: int) -> int:
    """Add an INT32 constant, and return its index."""
    operand = model.main.operands.add(type=int(OperandType.INT32))
    _constant(model, operand, value.to_bytes(4, "little", signed=True))
    return len(model.main.operands) - 1


def _constant(model: Any, operand: Any, data: bytes) -> None:
    model.operand_values += bytes(-len(model.operand_values) % 4)
    operand.lifetime = int(OperandLifeTime.CONSTANT_COPY)
    operand.location.offset, operand.location.length = len(model.operand_values), len(data)
    model.operand_values += data
