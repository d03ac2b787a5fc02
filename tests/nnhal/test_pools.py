"""What travels inside a message and what does not."""

from dataclasses import replace

import numpy as np

from driver.validation.model import validate_model
from nnhal import ModelBuilder, pools, wire
from nnhal.types import DataLocation, Memory, Model, Operand, OperandLifeTime, ReturnedPool
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import execute, prepare

KIB = 1024


def pool(size: int) -> Memory:
    return Memory.of(np.zeros(size, np.uint8))


def with_values(size: int) -> Model:
    """x + constants, in both subgraphs of an IF; operand values of `size` bytes, the constants at their end."""
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

    def moved(operand: Operand) -> Operand:
        if operand.lifetime != OperandLifeTime.CONSTANT_COPY:
            return operand
        return replace(operand, location=replace(operand.location, offset=operand.location.offset + lead))

    referenced = tuple(replace(graph, operands=tuple(map(moved, graph.operands))) for graph in model.referenced)
    return replace(model, referenced=referenced, operand_values=bytes(lead) + bytes(model.operand_values))


def test_large_pools_are_uploaded_each_once() -> None:
    small, large, window = pool(64 * KIB), pool(64 * KIB + 1), Memory(np.zeros(10**6, np.uint8), 5, 100)
    assert pools.to_upload([small, large, ReturnedPool(), window, large]) == [large]


def test_what_is_sent_once_travels_inside_the_message_while_there_is_room() -> None:
    large, larger = pool(1024 * KIB), pool(1024 * KIB + 1)
    assert pools.to_upload([large], lasting=False) == []
    assert pools.to_upload([large, larger], lasting=False) == [larger]


def test_what_one_message_cannot_hold_is_uploaded() -> None:
    medium = [pool(60 * KIB) for _ in range(40)]
    first = pools.MESSAGE_BYTES // (60 * KIB)
    assert pools.to_upload(medium) == medium[first:]
    assert pools.to_upload(medium, taken=1024 * KIB) == medium[first // 2 :]
    # what is small still fits in when something larger did not
    assert pools.to_upload([*medium, pool(100)]) == medium[first:]
    assert pools.to_upload([pool(1)], taken=pools.MESSAGE_BYTES) != []


def test_messages_of_pools() -> None:
    here, there = Memory.of(b"abc"), Memory.of(b"def")
    send = pools.sender({there: pools.uploaded_memory(b"handle")})
    assert send(here) == wire.inline_memory(here)
    assert send(there).mapped.memory == b"handle"
    assert send(there).WhichOneof("memory") == "mapped"


def test_a_few_operand_values_stay() -> None:
    model = with_values(pools.OPERAND_VALUES_BYTES)
    assert pools.with_small_values(model) is model


def test_many_operand_values_become_a_pool_of_the_same_model() -> None:
    model = with_values(pools.OPERAND_VALUES_BYTES + 1)
    validate_model(model)
    moved = pools.with_small_values(model)
    validate_model(moved)
    assert moved.operand_values == b""
    assert moved.pools[0] is model.pools[0]
    assert len(moved.pools) == 2
    lifetimes = {operand.lifetime for graph in moved.subgraphs for operand in graph.operands}
    assert OperandLifeTime.CONSTANT_COPY not in lifetimes
    for flag in (True, False):
        inputs = [np.array([flag]), np.array([1, 2], np.float32)]
        expected, found = (execute(prepare(each), inputs)[1][0] for each in (model, moved))
        np.testing.assert_array_equal(found, expected)


def test_an_invalid_location_stays_invalid() -> None:
    model = with_values(pools.OPERAND_VALUES_BYTES + 1)
    graph = model.referenced[0]
    operands = [
        replace(o, location=DataLocation(1, 0, 8)) if o.lifetime == OperandLifeTime.CONSTANT_COPY else o
        for o in graph.operands
    ]
    wrong = replace(model, referenced=(replace(graph, operands=tuple(operands)), *model.referenced[1:]))
    assert pools.with_small_values(wrong).referenced[0].operands == tuple(operands)


def test_uploads_come_in_chunks() -> None:
    data = np.random.default_rng(0).integers(0, 256, 2 * pools.CHUNK_BYTES + 3, np.uint8)
    requests = list(pools.upload_requests(b"s", b"m", data))
    assert [request.offset for request in requests] == [0, pools.CHUNK_BYTES, 2 * pools.CHUNK_BYTES]
    assert b"".join(request.data for request in requests) == data.tobytes()
