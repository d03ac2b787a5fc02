"""Large models and tensors: what travels, and what the service's memory peaks at."""

from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.types import (
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
from tests.end_to_end.processes import memory
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


def test_300_megabytes_of_constants(tmp_path: Path) -> None:
    service = start(tmp_path)
    before = memory(service.process.pid, "VmHWM")
    model = sum_of_constants(30, 2_500_000)
    pool = model.pools[0]
    assert isinstance(pool, Memory)
    assert pool.size == 300 * MEGABYTE
    with relay(service.target) as through, nnhal.connect(through.target) as device:
        first = device.prepare(model).result(120)
        once = through.sent
        second = device.prepare(model).result(120)
        again = through.sent - once
        peak = memory(service.process.pid, "VmHWM")
        first.close()
        x = np.zeros(2_500_000, np.float32)
        expected = pool.view.view(np.float32).reshape(30, -1).cumsum(axis=0, dtype=np.float32)[-1]
        np.testing.assert_allclose(second.execute([x])[0], expected, rtol=1e-5, atol=1e-5)
    stop(service)
    print(
        f"\nsent {once:,} bytes, then {again:,}; peak {peak / pool.size:.2f} x the constants, {before:,} bytes before"
    )
    assert 300 * MEGABYTE <= once < 303 * MEGABYTE
    assert again < 20_000
    assert peak < 2.2 * pool.size


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
