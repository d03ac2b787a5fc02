"""Requests written by hand, through the generated stubs alone: what any client in any language would send."""

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
class Raw:
    """A session, and the stubs."""

    session: bytes
    opened: session_pb2.SessionOpened
    sessions: session_pb2_grpc.SessionStub
    device: device_pb2_grpc.DeviceStub
    prepared_model: prepared_model_pb2_grpc.PreparedModelStub
    memory: memory_pb2_grpc.MemoryServiceStub
    channel: grpc.Channel


@contextmanager
def raw_session(target: str) -> Iterator[Raw]:
    """Opens a session; closes it and the channel at the end."""
    with grpc.insecure_channel(target) as channel:
        sessions = session_pb2_grpc.SessionStub(channel)
        stream = sessions.Open(session_pb2.OpenRequest(client_name="test"))
        opened = next(iter(stream)).opened
        yield Raw(
            opened.session,
            opened,
            sessions,
            device_pb2_grpc.DeviceStub(channel),
            prepared_model_pb2_grpc.PreparedModelStub(channel),
            memory_pb2_grpc.MemoryServiceStub(channel),
            channel,
        )
        stream.cancel()


def detail(error: grpc.RpcError) -> error_pb2.ErrorDetail:
    """What a failed call carries in its trailer."""
    assert isinstance(error, grpc.Call)
    (raw,) = [value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"]
    assert isinstance(raw, bytes)
    found = error_pb2.ErrorDetail()
    assert error_pb2.RpcStatus.FromString(raw).details[0].Unpack(found)
    return found


class ModelWriter:
    """Puts a Model message together, operand by operand."""

    def __init__(self) -> None:
        self.model = types_pb2.Model()
        self._values = bytearray()

    def _add(self, **fields: object) -> int:
        self.model.main.operands.add(**fields)
        return len(self.model.main.operands) - 1

    def constant(self, type_: enums_pb2.OperandType.ValueType, value: AnyArray) -> int:
        """A CONSTANT_COPY operand."""
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
        """A constant INT32 scalar."""
        return self.constant(I32, np.int32(value))  # type: ignore[arg-type]

    def input(self, shape: tuple[int, ...]) -> int:
        """A float32 input of the model."""
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
        """An operation with one output, a temporary or (last) the model's."""
        lifetime = enums_pb2.OPERAND_LIFE_TIME_TEMPORARY_VARIABLE
        if last:
            lifetime = enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT
        index = self._add(type=type_, dimensions=shape, scale=scale, lifetime=lifetime)
        number = enums_pb2.OperationType.Value(f"OPERATION_TYPE_{operation}")
        self.model.main.operations.add(type=number, inputs=inputs, outputs=[index])
        if last:
            self.model.main.output_indexes.append(index)
        return index


def chain(length: int) -> types_pb2.Model:
    """A model of `length` ADDs: input [2] plus one, again and again."""
    writer = ModelWriter()
    one = writer.constant(F32, np.ones(2, np.float32))
    none = writer.number(0)
    value = writer.input((2,))
    for i in range(length):
        value = writer.apply("ADD", [value, one, none], (2,), last=i == length - 1)
    return writer.model


def execute_request(
    raw: Raw, prepared: bytes, inputs: list[AnyArray]
) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    """All inputs in one pool, one output as large as needed."""
    data = b"".join(array.tobytes() for array in inputs)
    request = types_pb2.Request(pools=[types_pb2.RequestMemoryPool(pool=types_pb2.Memory(inline=data))])
    offset = 0
    for array in inputs:
        request.inputs.add(location=types_pb2.DataLocation(offset=offset, length=array.nbytes))
        offset += array.nbytes
    request.outputs.add(location=types_pb2.DataLocation(pool_index=1))
    request.pools.add(returned=types_pb2.ReturnedPool())
    return prepared_model_pb2.ExecuteSynchronouslyRequest(session=raw.session, prepared_model=prepared, request=request)


def prepare_request(raw: Raw, model: types_pb2.Model, deadline_ns: int | None = None) -> device_pb2.PrepareModelRequest:
    """A PrepareModel request."""
    return device_pb2.PrepareModelRequest(
        session=raw.session,
        model=model,
        preference=enums_pb2.EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER,
        priority=enums_pb2.PRIORITY_MEDIUM,
        deadline_ns=deadline_ns,
    )
