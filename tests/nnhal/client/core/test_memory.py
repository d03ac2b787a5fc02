"""Memory pools inside messages, and those that are uploaded."""

from dataclasses import replace

import numpy as np

from nnhal import ModelBuilder, wire
from nnhal.client.core import memory
from nnhal.types import DataLocation, Memory, Model, Operand, OperandLifeTime, ReturnedPool
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.validation.model import validate_model
from tests.driver.one_operation import execute, prepare

KIB = 1024


def pool(size: int) -> Memory:
    return Memory.of(np.zeros(size, np.uint8))


def with_values(size: int) -> Model:
    """Return a model of an IF that adds constants in both subgraphs, with `size` bytes of operand values."""
    b = ModelBuilder()
    graphs = []
    for amount in (1, 2):
        with b.subgraph() as graph:
            x = graph.input(T.TENSOR_FLOAT32, [2])
            constant = np.full(2, amount, np.float32)
            graph.output(graph.add(Op.ADD, x, constant, 0, output=Operand(T.TENSOR_FLOAT32, (2,))))
        graphs.append(graph)
    condition, x = b.input(T.TENSOR_BOOL8, [1]), b.input(T.TENSOR_FLOAT32, [2])
    b.constant(np.arange(100, dtype=np.float32))
    b.output(b.add(Op.IF, condition, *graphs, x, output=Operand(T.TENSOR_FLOAT32, (2,))))
    model = b.build()
    lead = size - len(model.operand_values)

    def move(operand: Operand) -> Operand:
        if operand.lifetime != OperandLifeTime.CONSTANT_COPY:
            return operand
        return replace(operand, location=replace(operand.location, offset=operand.location.offset + lead))

    referenced = tuple(replace(graph, operands=tuple(map(move, graph.operands))) for graph in model.referenced)
    return replace(model, referenced=referenced, operand_values=bytes(lead) + bytes(model.operand_values))


def test_large_pools_are_uploaded_once_each() -> None:
    small, large, window = pool(64 * KIB), pool(64 * KIB + 1), Memory(np.zeros(10**6, np.uint8), 5, 100)
    assert memory.pools_to_upload([small, large, ReturnedPool(), window, large]) == [large]


def test_inputs_travel_inside_the_message_while_it_has_room() -> None:
    large, larger = pool(1024 * KIB), pool(1024 * KIB + 1)
    assert memory.pools_to_upload([large], deduplicate=False) == []
    assert memory.pools_to_upload([large, larger], deduplicate=False) == [larger]


def test_pools_beyond_the_message_limit_are_uploaded() -> None:
    medium = [pool(60 * KIB) for _ in range(40)]
    first = memory.MAX_MESSAGE_VALUES_BYTES // (60 * KIB)
    assert memory.pools_to_upload(medium) == medium[first:]
    assert memory.pools_to_upload(medium, reserved=1024 * KIB) == medium[first // 2 :]
    # a small pool still fits after a larger one did not
    assert memory.pools_to_upload([*medium, pool(100)]) == medium[first:]
    assert memory.pools_to_upload([pool(1)], reserved=memory.MAX_MESSAGE_VALUES_BYTES) != []


def test_pool_encoder() -> None:
    inline, uploaded = Memory.of(b"abc"), Memory.of(b"def")
    encode = memory.pool_encoder({uploaded: memory.memory_object_message(b"handle")})
    assert encode(inline) == wire.inline_memory(inline)
    assert encode(uploaded).mapped.memory == b"handle"
    assert encode(uploaded).WhichOneof("memory") == "mapped"


def test_small_operand_values_stay() -> None:
    model = with_values(memory.MAX_OPERAND_VALUES_BYTES)
    assert memory.move_large_values(model) is model


def test_large_operand_values_become_a_pool() -> None:
    model = with_values(memory.MAX_OPERAND_VALUES_BYTES + 1)
    validate_model(model)
    moved = memory.move_large_values(model)
    validate_model(moved)
    assert moved.operand_values == b""
    assert moved.pools[0] is model.pools[0]
    assert len(moved.pools) == 2
    lifetimes = {operand.lifetime for graph in moved.subgraphs for operand in graph.operands}
    assert OperandLifeTime.CONSTANT_COPY not in lifetimes
    for flag in (True, False):
        inputs = [np.array([flag]), np.array([1, 2], np.float32)]
        expected, actual = (execute(prepare(each), inputs)[1][0] for each in (model, moved))
        np.testing.assert_array_equal(actual, expected)


def test_invalid_location_stays_invalid() -> None:
    model = with_values(memory.MAX_OPERAND_VALUES_BYTES + 1)
    graph = model.referenced[0]
    operands = [
        replace(o, location=DataLocation(1, 0, 8)) if o.lifetime == OperandLifeTime.CONSTANT_COPY else o
        for o in graph.operands
    ]
    wrong = replace(model, referenced=(replace(graph, operands=tuple(operands)), *model.referenced[1:]))
    assert memory.move_large_values(wrong).referenced[0].operands == tuple(operands)


def test_uploads_are_chunked() -> None:
    data = np.random.default_rng(0).integers(0, 256, 2 * memory.CHUNK_BYTES + 3, np.uint8)
    requests = list(memory.upload_requests(b"s", b"m", data))
    assert [request.offset for request in requests] == [0, memory.CHUNK_BYTES, 2 * memory.CHUNK_BYTES]
    assert b"".join(request.data for request in requests) == data.tobytes()
