"""Valid requests for every method of a server, as seeds for mutations."""

import hashlib
from collections.abc import Sequence
from functools import cache

import grpc
import numpy as np
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import burst_pb2, device_pb2, enums_pb2, memory_pb2, prepared_model_pb2, session_pb2, types_pb2
from nnhal.wire import model_message
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.raw_client import F32, I32, ModelWriter, add_chain, open_raw_session, prepare_request
from tests.end_to_end.support.rpc_methods import METHODS

Call = tuple[str, Sequence[Message]]
"""Name of a method and its requests."""

BOOL8 = enums_pb2.OPERAND_TYPE_TENSOR_BOOL8
SUBGRAPH = enums_pb2.OPERAND_TYPE_SUBGRAPH
CONTENT = bytes(range(64))


class Stage:
    """A session with one object of each kind.

    Attributes:
        raw: the session with its stubs.
        session: handle of the session.
        model: handle of a prepared model, `add_chain(2)`.
        memory: handle of a memory object of 64 bytes.
        definition: handle of a defined request of the model.
    """

    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(target)
        self._opened = open_raw_session(target)
        self.raw = self._opened.__enter__()
        self.session = self.raw.session
        events = list(self.raw.device.PrepareModel(prepare_request(self.raw, add_chain(2))))
        self.model = events[-1].notify.prepared_model
        create = memory_pb2.CreateMemoryRequest(session=self.session, size=len(CONTENT))
        self.memory = self.raw.memory.Create(create).memory
        self.definition = self.raw.prepared_model.Define(self._define_request()).definition

    @property
    def whole(self) -> bool:
        """True if all objects still exist."""
        try:
            self.raw.prepared_model.GetInterfaceVersion(
                prepared_model_pb2.PreparedModelRequest(session=self.session, prepared_model=self.model), timeout=60
            )
            list(self.raw.memory.Read(memory_pb2.ReadRequest(session=self.session, memory=self.memory), timeout=60))
        except grpc.RpcError:
            return False
        return True

    def release(self, handles: Sequence[bytes]) -> None:
        """Release the objects that a call created."""
        self.raw.sessions.Release(session_pb2.ReleaseRequest(session=self.session, handles=handles), timeout=60)

    def close(self) -> None:
        """End session and channel."""
        self._opened.__exit__(None, None, None)
        self.channel.close()

    # ---- Requests ---------------------------------------------------------------------------------------

    def calls(self) -> list[Call]:
        """Return valid calls of every method. Methods without a seed get an empty request with the session."""
        calls: list[Call] = [
            *self._session_calls(),
            *self._memory_calls(),
            *self._device_calls(),
            *self._model_calls(),
            ("Health.Check", [health_pb2.HealthCheckRequest(service="nnhal.v1.Device")]),
            ("Health.Watch", [health_pb2.HealthCheckRequest()]),
            (
                "ServerReflection.ServerReflectionInfo",
                [
                    reflection_pb2.ServerReflectionRequest(list_services=""),
                    reflection_pb2.ServerReflectionRequest(file_containing_symbol="nnhal.v1.Device"),
                ],
            ),
        ]
        covered = {name for name, _ in calls}
        return calls + [(name, [self._empty_request(name)]) for name in METHODS if name not in covered]

    def _empty_request(self, name: str) -> Message:
        message_type = METHODS[name].request
        if "session" in message_type.DESCRIPTOR.fields_by_name:
            return message_type(session=self.session)
        return message_type()

    def _session_calls(self) -> list[Call]:
        return [
            ("Session.Open", [session_pb2.OpenRequest(client_name="test")]),
            ("Session.Open", [session_pb2.OpenRequest(session=self.session)]),
            ("Session.Close", [session_pb2.CloseRequest(session=self.session)]),
            ("Session.Release", [session_pb2.ReleaseRequest(session=self.session, handles=[self.model, b"none"])]),
        ]

    def _memory_calls(self) -> list[Call]:
        digest = hashlib.sha256(CONTENT).digest()
        chunks = [
            memory_pb2.UploadRequest(session=self.session, memory=self.memory, offset=i, data=CONTENT[i : i + 16])
            for i in range(0, len(CONTENT), 16)
        ]
        return [
            ("MemoryService.Create", [memory_pb2.CreateMemoryRequest(session=self.session, size=64)]),
            ("MemoryService.Create", [memory_pb2.CreateMemoryRequest(session=self.session, size=64, sha256=digest)]),
            ("MemoryService.Upload", chunks),
            (
                "MemoryService.Read",
                [memory_pb2.ReadRequest(session=self.session, memory=self.memory, offset=1, length=9)],
            ),
        ]

    def _device_calls(self) -> list[Call]:
        named = [device_pb2.DeviceRequest(device="nnhal")]
        calls: list[Call] = [
            (name, named) for name, method in METHODS.items() if method.request is device_pb2.DeviceRequest
        ]
        for model in models():
            supported = device_pb2.GetSupportedOperationsRequest(session=self.session, model=model, explain=True)
            calls += [
                ("Device.GetSupportedOperations", [supported]),
                ("Device.PrepareModel", [prepare_request(self.raw, model, 10**10)]),
                ("Device.PrepareModelWithConfig", [self._with_config(model)]),
            ]
        return calls

    def _with_config(self, model: types_pb2.Model) -> device_pb2.PrepareModelWithConfigRequest:
        config = types_pb2.PrepareModelConfig(deadline_ns=10**10)
        config.compilation_hints.add(token=0x00010001, value=b"hint")
        config.extension_name_to_prefix.add(name="org.example.test", prefix=1)
        return device_pb2.PrepareModelWithConfigRequest(session=self.session, model=model, config=config)

    def _model_calls(self) -> list[Call]:
        handles = prepared_model_pb2.PreparedModelRequest(session=self.session, prepared_model=self.model)
        config = types_pb2.ExecutionConfig(measure_timing=True, loop_timeout_duration_ns=10**8)
        config.execution_hints.add(token=0x00010001, value=b"hint")
        config.extension_name_to_prefix.add(name="org.example.test", prefix=1)
        run = prepared_model_pb2.RunRequest(
            session=self.session, definition=self.definition, values=[bytes(8)], deadline_ns=10**10
        )
        calls: list[Call] = [
            ("PreparedModel.GetInterfaceVersion", [handles]),
            ("PreparedModel.Define", [self._define_request()]),
            ("PreparedModel.Run", [run]),
            ("Burst.Stream", [burst_pb2.BurstStreamRequest(run=run)] * 2),
        ]
        for request in (inline_request(), self._mapped_request()):
            plain = prepared_model_pb2.ExecuteSynchronouslyRequest(
                session=self.session, prepared_model=self.model, request=request, deadline_ns=10**10
            )
            plain.loop_timeout_duration_ns = 10**8
            configured = prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest(
                session=self.session, prepared_model=self.model, request=request, deadline_ns=10**10, config=config
            )
            calls += [
                ("PreparedModel.ExecuteSynchronously", [plain]),
                ("PreparedModel.ExecuteSynchronouslyWithConfig", [configured]),
            ]
        return calls

    def _define_request(self) -> prepared_model_pb2.DefineRequest:
        request = inline_request()
        request.pools[0].value.size = 8
        return prepared_model_pb2.DefineRequest(session=self.session, target=self.model, request=request)

    def _mapped_request(self) -> types_pb2.Request:
        """Return a request with input and output in two windows of the memory object."""
        request = types_pb2.Request()
        for start in (0, 32):
            window = request.pools.add().pool.mapped
            window.memory, window.offset, window.length = self.memory, start, 32
        request.inputs.add(location=types_pb2.DataLocation(pool_index=0, length=8), dimensions=[2])
        request.outputs.add(location=types_pb2.DataLocation(pool_index=1, offset=8, length=8, padding=8))
        return request


def inline_request() -> types_pb2.Request:
    """Return a request with one inline input of two floats and one output of any size."""
    request = types_pb2.Request()
    request.inputs.add(location=types_pb2.DataLocation(length=8))
    request.outputs.add(location=types_pb2.DataLocation(pool_index=1))
    request.pools.add(pool=types_pb2.Memory(inline=np.ones(2, np.float32).tobytes()))
    request.pools.add(returned=types_pb2.ReturnedPool())
    return request


# ---- Models ---------------------------------------------------------------------------------------------


@cache
def models() -> tuple[types_pb2.Model, ...]:
    """Return small models that together use every field of the contract."""
    return add_chain(3), _per_channel(), _pooled(), loop(), branches(2)


def _per_channel() -> types_pb2.Model:
    """Return a quantized convolution with one scale per channel."""
    q8 = T.TENSOR_QUANT8_ASYMM
    return model_message(
        model_of(
            Op.CONV_2D,
            [
                (tensor(q8, (1, 3, 3, 1), 0.5, 128), np.zeros((1, 3, 3, 1))),
                (tensor(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 2, 2, 1), channels=(0.5, 0.25)), np.ones((2, 2, 2, 1))),
                (tensor(T.TENSOR_INT32, (2,)), [1, 2]),
                *map(int32, (1, 1, 1, 0)),
            ],
            [tensor(q8, (1, 3, 3, 2), 1.0, 128)],
        )
    )


def _pooled() -> types_pb2.Model:
    """Return a model with constants in a pool and an operation of a vendor extension."""
    model = add_chain(2)
    model.pools.add(inline=np.ones(4, np.float32).tobytes())
    constant = model.main.operands[0]
    constant.lifetime = enums_pb2.OPERAND_LIFE_TIME_CONSTANT_POOL
    constant.location.offset = 8
    model.extension_name_to_prefix.add(name="org.example.test", prefix=1)
    model.main.operations[1].type = 0x00010007  # type: ignore[assignment]
    return model


def loop(growing: bool = False) -> types_pb2.Model:
    """Return a WHILE whose condition is always true. With `growing`, its tensor doubles in each iteration."""
    model = types_pb2.Model(operand_values=bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    shape = [0] if growing else [2]
    condition, body = model.referenced.add(), model.referenced.add()
    condition.operands.add(type=F32, dimensions=shape, lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT)
    condition.operands.add(
        type=BOOL8,
        dimensions=[1],
        lifetime=enums_pb2.OPERAND_LIFE_TIME_CONSTANT_COPY,
        location=types_pb2.DataLocation(length=1),
    )
    condition.operands.add(type=BOOL8, dimensions=[1], lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT)
    condition.operations.add(type=enums_pb2.OPERATION_TYPE_LOGICAL_AND, inputs=[1, 1], outputs=[2])
    _add_step(body, shape, growing)
    for graph, result in ((condition, 2), (body, len(body.operands) - 1)):
        graph.input_indexes.append(0)
        graph.output_indexes.append(result)
    _add_call(model.main, enums_pb2.OPERATION_TYPE_WHILE, shape)
    return model


def _add_step(body: types_pb2.Subgraph, shape: list[int], growing: bool) -> None:
    """Add the operation of one loop step: x + x, or (`growing`) x concatenated with itself."""
    body.operands.add(type=F32, dimensions=shape, lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT)
    body.operands.add(
        type=I32,
        lifetime=enums_pb2.OPERAND_LIFE_TIME_CONSTANT_COPY,
        location=types_pb2.DataLocation(offset=4, length=4),
    )
    body.operands.add(type=F32, dimensions=shape, lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT)
    operation = enums_pb2.OPERATION_TYPE_CONCATENATION if growing else enums_pb2.OPERATION_TYPE_ADD
    body.operations.add(type=operation, inputs=[0, 0, 1], outputs=[2])


def _add_call(graph: types_pb2.Subgraph, operation: enums_pb2.OperationType.ValueType, shape: list[int]) -> None:
    for i in range(2):
        graph.operands.add(
            type=SUBGRAPH,
            lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH,
            location=types_pb2.DataLocation(offset=i),
        )
    graph.operands.add(type=F32, dimensions=shape, lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT)
    graph.operands.add(type=F32, dimensions=shape, lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT)
    graph.operations.add(type=operation, inputs=[0, 1, 2], outputs=[3])
    graph.input_indexes.append(2)
    graph.output_indexes.append(3)


def branches(depth: int) -> types_pb2.Model:
    """Return a model of nested IF operations around an ADD."""
    writer = ModelWriter()
    none = writer.number(0)
    value = writer.input((2,))
    writer.apply("ADD", [value, value, none], (2,), last=True)
    bottom = writer.model.main
    model = types_pb2.Model(operand_values=bytes([0, 0, 0, 0, 1]))
    graphs = [model.main, *(model.referenced.add() for _ in range(depth))]
    for number, graph in enumerate(graphs[:-1]):
        _add_if(graph, number)
    graphs[-1].CopyFrom(bottom)
    return model


def _add_if(graph: types_pb2.Subgraph, callee: int) -> None:
    graph.operands.add(
        type=BOOL8,
        dimensions=[1],
        lifetime=enums_pb2.OPERAND_LIFE_TIME_CONSTANT_COPY,
        location=types_pb2.DataLocation(offset=4, length=1),
    )
    graph.operands.add(
        type=SUBGRAPH,
        lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH,
        location=types_pb2.DataLocation(offset=callee),
    )
    graph.operands.add(type=F32, dimensions=[2], lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT)
    graph.operands.add(type=F32, dimensions=[2], lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT)
    graph.operations.add(type=enums_pb2.OPERATION_TYPE_IF, inputs=[0, 1, 1, 2], outputs=[3])
    graph.input_indexes.append(2)
    graph.output_indexes.append(3)
