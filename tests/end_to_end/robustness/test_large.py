"""Large models and tensors: bytes on the wire, and peak memory of the service."""

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
from tests.concurrency import wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.process_usage import memory_bytes, status_bytes, track_peak
from tests.end_to_end.support.relay import relay
from tests.end_to_end.support.service_process import start_service, stop_service

MEGABYTE = 10**6


def sum_of_constants(count: int, floats: int) -> Model:
    """Return the model x + c0 + c1 + ... with `count` constants of `floats` float32 each, in one pool."""
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
    """Return the model x @ w0 @ w1 ... with `count` constants of size × size float32, which the engine packs again."""
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


def half_products(count: int, size: int) -> Model:
    """Return the model x @ w0 @ w1 ... with float16 constants, each of which a CAST converts to float32."""
    build = nnhal.ModelBuilder()
    rng = np.random.default_rng(0)
    value = build.input(T.TENSOR_FLOAT32, (1, size))
    bias = build.constant(np.zeros(size, np.float32))
    for _ in range(count):
        stored = build.constant((rng.standard_normal((size, size), np.float32) / size).astype(np.float16))
        weights = build.add(Op.CAST, stored, output=tensor(T.TENSOR_FLOAT32, (size, size)))
        value = build.add(Op.FULLY_CONNECTED, value, weights, bias, 0, output=tensor(T.TENSOR_FLOAT32, (1, size)))
    build.output(value)
    return build.build()


@pytest.mark.slow
def test_float16_weights_need_as_much_memory_as_float32_weights(tmp_path: Path) -> None:
    """The engine computes with float32, which takes twice the memory. Nothing of it is held while it is converted."""
    service = start_service(tmp_path)
    model = half_products(30, 1580)
    (pool,) = model.pools
    assert isinstance(pool, Memory)
    before = memory_bytes(service.pid)
    with nnhal.connect(service.target) as device:
        with track_peak(service.pid) as highest:
            prepared = device.prepare(model).result(120)
        prepared.execute([np.ones((1, 1580), np.float32)])
        prepared.close()
    after = wait_for_memory(service.pid, before + 0.2 * pool.size)
    stop_service(service)
    print(f"\npeak {(highest[0]) / pool.size:.2f} x the float16 constants")
    assert highest[0] - before < 2.6 * 2 * pool.size
    assert after < before + 0.2 * pool.size, "memory of closed models was not freed"


def expected_sum(values: AnyArray) -> AnyArray:
    total: AnyArray = values.reshape(30, -1).cumsum(axis=0, dtype=np.float32)[-1]
    return total


def expected_product(values: AnyArray) -> AnyArray:
    result: AnyArray = np.ones((1, 1580), np.float32)
    for weights in values.reshape(30, 1580, 1580):
        result = result @ weights.T
    return result


@pytest.mark.parametrize(
    ("make_model", "fill", "expected", "backends"),
    [
        (lambda: sum_of_constants(30, 2_500_000), 0, expected_sum, "CpuAcc,CpuRef"),
        (lambda: sum_of_constants(30, 2_500_000), 0, expected_sum, "CpuRef"),
        (lambda: products(30, 1580), 1, expected_product, "CpuAcc,CpuRef"),
    ],
    ids=["sum", "sum on CpuRef", "products"],
)
@pytest.mark.slow
def test_300_megabytes_of_constants(
    make_model: Callable[[], Model], fill: int, expected: Callable[[AnyArray], AnyArray], backends: str, tmp_path: Path
) -> None:
    service = start_service(tmp_path, "--backends", backends)
    model = make_model()
    pool = model.pools[0]
    assert isinstance(pool, Memory) and 299 * MEGABYTE < pool.size <= 300 * MEGABYTE
    before = memory_bytes(service.pid)
    with relay(service.target) as through, nnhal.connect(through.target) as device:
        with track_peak(service.pid) as highest:
            first = device.prepare(model).result(120)
        first_bytes = through.sent
        second = device.prepare(model).result(120)
        second_bytes = through.sent - first_bytes
        first.close()
        x = np.full(second.inputs[0].dimensions, fill, np.float32)
        np.testing.assert_allclose(second.execute([x])[0], expected(pool.view.view(np.float32)), rtol=1e-3, atol=1e-5)
    after = wait_for_memory(service.pid, before + 0.2 * pool.size)
    stop_service(service)
    print(f"\nsent {first_bytes:,} bytes, then {second_bytes:,}; {before:,} bytes before, {after:,} after;", end=" ")
    print(f"peak {highest[0] / pool.size:.2f} x the constants")
    assert pool.size <= first_bytes < 303 * MEGABYTE
    assert second_bytes < 20_000
    assert highest[0] < 2.5 * pool.size
    assert after < before + 0.2 * pool.size, "memory of closed models was not freed"


def wait_for_memory(pid: int, limit: float) -> int:
    """Wait until a process uses less memory than a limit, at most a minute, and return its memory in bytes."""
    wait_until(lambda: memory_bytes(pid) < limit)
    return memory_bytes(pid)


@pytest.mark.parametrize("megabytes", [1, 3, 24])
def test_large_inputs_and_outputs_with_default_settings(megabytes: int, tmp_path: Path) -> None:
    unknown = tensor(T.TENSOR_FLOAT32, (0,))
    model = model_of(Op.ADD, [(unknown, 0), (unknown, 0), int32(0)], [unknown], constants=False)
    x = np.random.default_rng(1).standard_normal(megabytes * MEGABYTE // 4, np.float32)
    service = start_service(tmp_path)
    with nnhal.connect(service.target) as device, device.prepare(model).result(60) as prepared:
        for _ in range(3):
            np.testing.assert_array_equal(prepared.execute([x, x])[0], 2 * x)
        settled = status_bytes(service.pid, "VmRSS")
        for _ in range(4):
            prepared.execute([x, x])
        grown = status_bytes(service.pid, "VmRSS") - settled
    stop_service(service)
    assert grown < 3.5 * x.nbytes + 20 * MEGABYTE, "memories of past executions are not freed"
