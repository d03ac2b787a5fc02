"""Handwritten requests through the generated stubs, as a client in any language would send them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import numpy as np

from nnhal.types import AnyArray
from nnhal.v1 import (
    device_pb2,
    device_pb2_grpc,
    enums_pb2,
    error_pb2,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)

F32 = enums_pb2.OPERAND_TYPE_TENSOR_FLOAT32
I32 = enums_pb2.OPERAND_TYPE_INT32


@dataclass(frozen=True)
class RawSession:
    """An open session and stubs for its services."""

    session: bytes
    opened: session_pb2.SessionOpened
    sessions: session_pb2_grpc.SessionStub
    device: device_pb2_grpc.DeviceStub
    prepared_model: prepared_model_pb2_grpc.PreparedModelStub
    memory: memory_pb2_grpc.MemoryServiceStub
    channel: grpc.Channel


@contextmanager
def open_raw_session(target: str) -> Iterator[RawSession]:
    """Open a session for the duration of a `with` block."""
    with grpc.insecure_channel(target) as channel, raw_session_on(channel) as raw:
        yield raw


@contextmanager
def raw_session_on(channel: grpc.Channel) -> Iterator[RawSession]:
    """Open a session on a channel for the duration of a `with` block."""
    sessions = session_pb2_grpc.SessionStub(channel)
    stream = sessions.Open(session_pb2.OpenRequest(client_name="test"))
    opened = next(iter(stream)).opened
    yield RawSession(
        opened.session,
        opened,
        sessions,
        device_pb2_grpc.DeviceStub(channel),
        prepared_model_pb2_grpc.PreparedModelStub(channel),
        memory_pb2_grpc.MemoryServiceStub(channel),
        channel,
    )
    stream.cancel()


def error_detail(error: grpc.RpcError) -> error_pb2.ErrorDetail:
    """Return the ErrorDetail from the trailer of a failed call."""
    assert isinstance(error, grpc.Call)
    (raw,) = [value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"]
    assert isinstance(raw, bytes)
    unpacked = error_pb2.ErrorDetail()
    assert error_pb2.RpcStatus.FromString(raw).details[0].Unpack(unpacked)
    return unpacked


class ModelWriter:
    """Builder of a Model message."""

    def __init__(self) -> None:
        self.model = types_pb2.Model()
        self._values = bytearray()

    def _add(self, **fields: object) -> int:
        self.model.main.operands.add(**fields)
        return len(self.model.main.operands) - 1

    def constant(self, type_: enums_pb2.OperandType.ValueType, value: AnyArray) -> int:
        """Add a CONSTANT_COPY operand and return its index."""
        raw = value.tobytes()
        location = types_pb2.DataLocation(offset=len(self._values), length=len(raw))
        self._values += raw
        self.model.operand_values = bytes(self._values)
        return self._add(
            type=type_,
            dimensions=value.shape,
            lifetime=enums_pb2.OPERAND_LIFE_TIME_CONSTANT_COPY,
            location=location,
        )

    def number(self, value: int) -> int:
        """Add a constant INT32 scalar and return its index."""
        return self.constant(I32, np.int32(value))  # type: ignore[arg-type]

    def input(self, shape: tuple[int, ...]) -> int:
        """Add a float32 input of the model and return its index."""
        index = self._add(type=F32, dimensions=shape, lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT)
        self.model.main.input_indexes.append(index)
        return index

    def apply(
        self,
        operation: str,
        inputs: list[int],
        shape: tuple[int, ...],
        *,
        type_: enums_pb2.OperandType.ValueType = F32,
        scale: float = 0.0,
        last: bool = False,
    ) -> int:
        """Add an operation and return the index of its output: a temporary, or (`last`) an output of the model."""
        lifetime = enums_pb2.OPERAND_LIFE_TIME_TEMPORARY_VARIABLE
        if last:
            lifetime = enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT
        index = self._add(type=type_, dimensions=shape, scale=scale, lifetime=lifetime)
        number = enums_pb2.OperationType.Value(f"OPERATION_TYPE_{operation}")
        self.model.main.operations.add(type=number, inputs=inputs, outputs=[index])
        if last:
            self.model.main.output_indexes.append(index)
        return index


def add_chain(length: int) -> types_pb2.Model:
    """Return a model of `length` ADD operations, each of which adds one to an input of shape [2]."""
    writer = ModelWriter()
    one = writer.constant(F32, np.ones(2, np.float32))
    none = writer.number(0)
    value = writer.input((2,))
    for i in range(length):
        value = writer.apply("ADD", [value, one, none], (2,), last=i == length - 1)
    return writer.model


def execute_request(
    raw: RawSession, prepared: bytes, inputs: list[AnyArray]
) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    """Return a request with all inputs in one pool and one output of any size in a returned pool."""
    data = b"".join(array.tobytes() for array in inputs)
    request = types_pb2.Request(pools=[types_pb2.RequestMemoryPool(pool=types_pb2.Memory(inline=data))])
    offset = 0
    for array in inputs:
        request.inputs.add(location=types_pb2.DataLocation(offset=offset, length=array.nbytes))
        offset += array.nbytes
    request.outputs.add(location=types_pb2.DataLocation(pool_index=1))
    request.pools.add(returned=types_pb2.ReturnedPool())
    return prepared_model_pb2.ExecuteSynchronouslyRequest(session=raw.session, prepared_model=prepared, request=request)


def prepare_request(
    raw: RawSession, model: types_pb2.Model, deadline_ns: int | None = None
) -> device_pb2.PrepareModelRequest:
    """Return a PrepareModel request."""
    return device_pb2.PrepareModelRequest(
        session=raw.session,
        model=model,
        preference=enums_pb2.EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER,
        priority=enums_pb2.PRIORITY_MEDIUM,
        deadline_ns=deadline_ns,
    )
