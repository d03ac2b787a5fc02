"""Large models and tensors: what travels, and what the service's memory peaks at."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import (
    AnyArray,
    DataLocation,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.conftest import start, stop
from tests.end_to_end.processes import bytes_held, memory, peak
from tests.end_to_end.relay import relay

MEGABYTE = 10**6


def sum_of_constants(count: int, floats: int) -> Model:
    """x + c0 + c1 + ...: `count` constants of `floats` float32 each, in one pool."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal(count * floats, np.float32)
    operands = [
        Operand(T.TENSOR_FLOAT32, (floats,), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)),
    ]
    operations, value = [], 0
    for i in range(count):
        location = DataLocation(0, i * floats * 4, floats * 4)
        operands.append(Operand(T.TENSOR_FLOAT32, (floats,), lifetime=OperandLifeTime.CONSTANT_POOL, location=location))
        last = i == count - 1
        lifetime = OperandLifeTime.SUBGRAPH_OUTPUT if last else OperandLifeTime.TEMPORARY_VARIABLE
        operands.append(Operand(T.TENSOR_FLOAT32, (floats,), lifetime=lifetime))
        operations.append(Operation(Op.ADD, (value, len(operands) - 2, 1), (len(operands) - 1,)))
        value = len(operands) - 1
    main = Subgraph(tuple(operands), tuple(operations), (0,), (value,))
    return Model(main, operand_values=bytes(4), pools=(Memory.of(data),))


def products(count: int, size: int) -> Model:
    """x @ w0 @ w1 ...: `count` constants of size x size float32, which the engine packs anew into memory of its own."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal(count * size * size, np.float32) / size
    operands = [
        Operand(T.TENSOR_FLOAT32, (1, size), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)),
        Operand(
            T.TENSOR_FLOAT32, (size,), lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 4, size * 4)
        ),
    ]
    operations, value, each = [], 0, size * size * 4
    for i in range(count):
        location = DataLocation(0, i * each, each)
        weights = Operand(T.TENSOR_FLOAT32, (size, size), lifetime=OperandLifeTime.CONSTANT_POOL, location=location)
        last = i == count - 1
        lifetime = OperandLifeTime.SUBGRAPH_OUTPUT if last else OperandLifeTime.TEMPORARY_VARIABLE
        operands += [weights, Operand(T.TENSOR_FLOAT32, (1, size), lifetime=lifetime)]
        end = len(operands) - 1
        operations.append(Operation(Op.FULLY_CONNECTED, (value, end - 1, 2, 1), (end,)))
        value = end
    main = Subgraph(tuple(operands), tuple(operations), (0,), (value,))
    return Model(main, operand_values=bytes(4 + size * 4), pools=(Memory.of(data),))


def sum_by_hand(values: AnyArray) -> AnyArray:
    total: AnyArray = values.reshape(30, -1).cumsum(axis=0, dtype=np.float32)[-1]
    return total


def product_by_hand(values: AnyArray) -> AnyArray:
    result: AnyArray = np.ones((1, 1580), np.float32)
    for weights in values.reshape(30, 1580, 1580):
        result = result @ weights.T
    return result


@pytest.mark.parametrize(
    ("model", "fill", "by_hand", "backends"),
    [
        (lambda: sum_of_constants(30, 2_500_000), 0, sum_by_hand, "CpuAcc,CpuRef"),
        (lambda: sum_of_constants(30, 2_500_000), 0, sum_by_hand, "CpuRef"),
        (lambda: products(30, 1580), 1, product_by_hand, "CpuAcc,CpuRef"),
    ],
    ids=["sum", "sum on CpuRef", "products"],
)
def test_300_megabytes_of_constants(
    model: Callable[[], Model], fill: int, by_hand: Callable[[AnyArray], AnyArray], backends: str, tmp_path: Path
) -> None:
    service = start(tmp_path, "--backends", backends)
    made = model()
    pool = made.pools[0]
    assert isinstance(pool, Memory) and 299 * MEGABYTE < pool.size <= 300 * MEGABYTE
    before = bytes_held(service.process.pid)
    with relay(service.target) as through, nnhal.connect(through.target) as device:
        with peak(service.process.pid) as highest:
            first = device.prepare(made).result(120)
        once = through.sent
        second = device.prepare(made).result(120)
        again = through.sent - once
        first.close()
        x = np.full(second.inputs[0].dimensions, fill, np.float32)
        np.testing.assert_allclose(second.execute([x])[0], by_hand(pool.view.view(np.float32)), rtol=1e-3, atol=1e-5)
    left = settled(service.process.pid, before + 0.2 * pool.size)
    stop(service)
    print(f"\nsent {once:,} bytes, then {again:,}; {before:,} bytes before, {left:,} after;", end=" ")
    print(f"peak {highest[0] / pool.size:.2f} x the constants")
    assert pool.size <= once < 303 * MEGABYTE
    assert again < 20_000
    assert highest[0] < 2.5 * pool.size
    assert left < before + 0.2 * pool.size, "memory of models that are closed is kept"


def settled(pid: int, wanted: float) -> int:
    """What a process holds when it holds less than wanted, or after some seconds: sessions end a little later."""
    for _ in range(50):
        if (held := bytes_held(pid)) < wanted:
            break
        time.sleep(0.1)
    return held


@pytest.mark.parametrize("megabytes", [1, 3, 24])
def test_large_inputs_and_outputs_with_default_settings(megabytes: int, tmp_path: Path) -> None:
    unknown = tensor(T.TENSOR_FLOAT32, (0,))
    model = model_of(Op.ADD, [(unknown, 0), (unknown, 0), int32(0)], [unknown], constants=False)
    x = np.random.default_rng(1).standard_normal(megabytes * MEGABYTE // 4, np.float32)
    service = start(tmp_path)
    with nnhal.connect(service.target) as device, device.prepare(model).result(10) as prepared:
        for _ in range(3):
            np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)
        settled = memory(service.process.pid, "VmRSS")
        for _ in range(4):
            prepared.execute([x, x])
        grown = memory(service.process.pid, "VmRSS") - settled
    stop(service)
    assert grown < 3.5 * x.nbytes + 20 * MEGABYTE, "memories of past executions are not freed"
