"""Attacks by models: they take long to check, to place, to compile or to execute."""

import contextlib
import threading
import time
from typing import Any

import grpc
import numpy as np

from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import device_pb2, enums_pb2, memory_pb2, prepared_model_pb2, types_pb2
from nnhal.wire import model_message
from tests.benchmark.attacks.attack import attack, count_codes, wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.raw_client import F32, I32, RawSession, add_chain, open_raw_session, prepare_request
from tests.end_to_end.support.valid_requests import inline_request, loop

_SHAPE_ELEMENTS = 2**25
_OPERATIONS = 90_000
_SPLITS = 100_000
_CHANNELS = 5000
_DEADLINE_NS = 10**9
_LONGEST_NS = 15 * 10**9
"""Longest loop timeout of the HAL."""


@attack("long shape")
def long_shape(target: str, end: float) -> str:
    """Prepare a RESHAPE whose new shape is a constant of 2^25 elements."""
    with open_raw_session(target) as raw:
        size = 4 * _SHAPE_ELEMENTS
        memory = raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=size)).memory
        model = types_pb2.Model()
        model.pools.add().mapped.memory = memory
        variable, constant = enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT, enums_pb2.OPERAND_LIFE_TIME_CONSTANT_POOL
        model.main.operands.add(type=F32, dimensions=[1], lifetime=variable)
        model.main.operands.add(
            type=enums_pb2.OPERAND_TYPE_TENSOR_INT32,
            dimensions=[_SHAPE_ELEMENTS],
            lifetime=constant,
            location=types_pb2.DataLocation(length=size),
        )
        model.main.operands.add(type=F32, lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT)
        model.main.operations.add(type=enums_pb2.OPERATION_TYPE_RESHAPE, inputs=[0, 1], outputs=[2])
        model.main.input_indexes.append(0)
        model.main.output_indexes.append(2)
        return _prepare_until(raw, model, end)


@attack("split and concatenation")
def split_and_concatenation(target: str, end: float) -> str:
    """Prepare a SPLIT into 100,000 tensors and a CONCATENATION of them, which the engine plans in quadratic time."""
    values = np.array([0, _SPLITS], np.int32)
    model = types_pb2.Model(operand_values=values.tobytes())
    graph, copy = model.main, enums_pb2.OPERAND_LIFE_TIME_CONSTANT_COPY
    graph.operands.add(type=F32, dimensions=[_SPLITS], lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT)
    graph.operands.add(type=I32, lifetime=copy, location=types_pb2.DataLocation(offset=0, length=4))
    graph.operands.add(type=I32, lifetime=copy, location=types_pb2.DataLocation(offset=4, length=4))
    part = types_pb2.Operand(type=F32, dimensions=[1], lifetime=enums_pb2.OPERAND_LIFE_TIME_TEMPORARY_VARIABLE)
    graph.operands.extend([part] * _SPLITS)
    graph.operands.add(type=F32, dimensions=[_SPLITS], lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT)
    parts = range(3, _SPLITS + 3)
    graph.operations.add(type=enums_pb2.OPERATION_TYPE_SPLIT, inputs=[0, 1, 2], outputs=parts)
    concatenation = enums_pb2.OPERATION_TYPE_CONCATENATION
    graph.operations.add(type=concatenation, inputs=[*parts, 1], outputs=[_SPLITS + 3])
    graph.input_indexes.append(0)
    graph.output_indexes.append(_SPLITS + 3)
    with open_raw_session(target) as raw:
        return _prepare_until(raw, model, end)


@attack("supported operations")
def supported_operations(target: str, end: float) -> str:
    """Ask 16 times at once which of 90,000 operations are supported."""
    with open_raw_session(target) as raw:
        request = device_pb2.GetSupportedOperationsRequest(session=raw.session, model=_long_chain())
        calls = [raw.device.GetSupportedOperations.future(request) for _ in range(16)]
        wait_until(end)
        return count_codes(calls)


@attack("large preparations")
def large_preparations(target: str, end: float) -> str:
    """Prepare a model of 90,000 operations 16 times at once."""
    with open_raw_session(target) as raw:
        request = prepare_request(raw, _long_chain(), _DEADLINE_NS)
        streams = [raw.device.PrepareModel(request) for _ in range(16)]
        threads = [threading.Thread(target=_read_all, args=(stream,), daemon=True) for stream in streams]
        for thread in threads:
            thread.start()
        wait_until(end)
        return f"16 preparations, of which ended: {sum(not thread.is_alive() for thread in threads)}"


@attack("endless loops")
def endless_loops(target: str, end: float) -> str:
    """Execute two WHILE loops that never end, without a deadline and with the longest loop timeout."""
    return _execute_twice(target, end, loop(), inline_request(), loop_timeout_duration_ns=_LONGEST_NS)


@attack("high priority")
def high_priority(target: str, end: float) -> str:
    """Execute loops of a second with the highest priority, eight at a time."""
    with open_raw_session(target) as raw:
        prepare = prepare_request(raw, loop())
        prepare.priority = enums_pb2.PRIORITY_HIGH
        *_, event = raw.device.PrepareModel(prepare)
        request = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=raw.session,
            prepared_model=event.notify.prepared_model,
            request=inline_request(),
            loop_timeout_duration_ns=10**9,
        )
        calls: list[Any] = []
        while time.monotonic() < end:
            calls += [raw.prepared_model.ExecuteSynchronously.future(request) for _ in range(8)]
            for call in calls[-8:]:
                call.exception()
        return count_codes(calls)


@attack("endless kernel")
def endless_kernel(target: str, end: float) -> str:
    """Execute a DEPTHWISE_CONV_2D of 5,000 channels whose weights come with the request."""
    image, weights, bias = (tensor(T.TENSOR_FLOAT32, shape) for shape in ((1,) * 4, (1, 1, 1, _CHANNELS), (_CHANNELS,)))
    arguments = [(image, 0), (weights, 0), (bias, 0), *map(int32, (1, 1, 1, _CHANNELS, 0))]
    model = model_of(Op.DEPTHWISE_CONV_2D, arguments, [tensor(T.TENSOR_FLOAT32)], constants=False)
    request = types_pb2.Request()
    offset = 0
    for count in (1, _CHANNELS, _CHANNELS):
        request.inputs.add(location=types_pb2.DataLocation(offset=offset, length=4 * count))
        offset += 4 * count
    request.outputs.add(location=types_pb2.DataLocation(pool_index=1))
    request.pools.add().pool.inline = bytes(offset)
    request.pools.add().returned.SetInParent()
    return _execute_twice(target, end, model_message(model), request, deadline_ns=_DEADLINE_NS)


def _long_chain() -> types_pb2.Model:
    return add_chain(_OPERATIONS)


def _execute_twice(target: str, end: float, model: types_pb2.Model, request: types_pb2.Request, **times: int) -> str:
    """Execute a model twice at once, and leave some time before the end."""
    with open_raw_session(target) as raw:
        *_, event = raw.device.PrepareModel(prepare_request(raw, model))
        message = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=raw.session, prepared_model=event.notify.prepared_model, request=request
        )
        for name, value in times.items():
            setattr(message, name, value)
        calls = [raw.prepared_model.ExecuteSynchronously.future(message) for _ in range(2)]
        wait_until(time.monotonic() + (end - time.monotonic()) / 2)
        result = count_codes(calls)
    wait_until(end)
    return result


def _prepare_until(raw: RawSession, model: types_pb2.Model, end: float) -> str:
    """Prepare a model again and again."""
    results: dict[str, int] = {}
    while (remaining_s := end - time.monotonic()) > 0:
        try:
            *_, event = raw.device.PrepareModel(prepare_request(raw, model), timeout=remaining_s)
            result = event.notify.reason or "prepared"
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            result = error.details() or error.code().name
        results[result[:60]] = results.get(result[:60], 0) + 1
    return ", ".join(f"{count} x {result!r}" for result, count in results.items())


def _read_all(stream: grpc.Call) -> None:
    with contextlib.suppress(grpc.RpcError):
        for _ in stream:  # type: ignore[attr-defined]
            pass
