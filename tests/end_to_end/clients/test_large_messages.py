"""Models and requests that are too large for one message, with default settings and both clients."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal import ModelBuilder
from nnhal.types import AnyArray, DataLocation, Memory, Model, Operand, OperandLifeTime
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.service_process import Service

Run: TypeAlias = Callable[[str, Model, Sequence[AnyArray]], Sequence[AnyArray]]


def run_sync(target: str, model: Model, inputs: Sequence[AnyArray]) -> Sequence[AnyArray]:
    with nnhal.connect(target) as device:
        assert all(device.supported_operations(model))
        with device.prepare(model).result(60) as prepared:
            return prepared.execute(inputs)


def run_async(target: str, model: Model, inputs: Sequence[AnyArray]) -> Sequence[AnyArray]:
    async def work() -> Sequence[AnyArray]:
        async with nnhal.aio.connect(target) as device:
            assert all(await device.supported_operations(model))
            async with await device.prepare(model) as prepared:
                return await prepared.execute(inputs)

    return asyncio.run(work())


@pytest.fixture(params=[run_sync, run_async], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a model once with one of the clients."""
    function: Run = request.param
    return function


def test_inputs_and_outputs_of_24_megabytes(service: Service, run: Run) -> None:
    x = tensor(T.TENSOR_FLOAT32, (0, 3))
    model = model_of(Op.ADD, [(x, 0), (x, 0), int32(0)], [x], constants=False)
    a, b = np.random.default_rng(0).standard_normal((2, 2_000_000, 3)).astype(np.float32)
    assert a.nbytes == 24_000_000
    (total,) = run(service.target, model, [a, b])
    np.testing.assert_array_equal(total, a + b)
    assert total.flags.writeable


def summing_model(lengths: Sequence[int]) -> tuple[Model, list[AnyArray]]:
    """Return a model that adds constants of equal length to its input, and the constants. Each one is an operand."""
    rng = np.random.default_rng(1)
    constants = [rng.integers(-9, 9, length).astype(np.float32) for length in lengths]
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [lengths[0]])
    for constant in constants:
        x = b.add(Op.ADD, x, b.constant(constant), 0, output=x.description)
    b.output(x)
    return b.build(), constants


def test_many_pools_of_medium_size(service: Service, run: Run) -> None:
    """Each pool fits into a message, all of them do not."""
    model, constants = summing_model([15_000] * 100)
    operands = list(model.main.operands)
    in_pools = [i for i, operand in enumerate(operands) if operand.lifetime == OperandLifeTime.CONSTANT_POOL]
    for number, i in enumerate(in_pools):
        operands[i] = replace(operands[i], location=DataLocation(number, 0, 60_000))
    pools = tuple(Memory.of(constant) for constant in constants)
    model = replace(model, main=replace(model.main, operands=tuple(operands)), pools=pools)
    (total,) = run(service.target, model, [np.zeros(15_000, np.float32)])
    np.testing.assert_array_equal(total, sum(constants))


def test_many_inputs_of_medium_size(service: Service, run: Run) -> None:
    b = ModelBuilder()
    inputs = [b.input(T.TENSOR_FLOAT32, [15_000]) for _ in range(100)]
    b.output(b.add(Op.CONCATENATION, *inputs, 0, output=Operand(T.TENSOR_FLOAT32, (1_500_000,))))
    arrays = [np.full(15_000, i, np.float32) for i in range(100)]
    (concatenated,) = run(service.target, b.build(), arrays)
    np.testing.assert_array_equal(concatenated, np.concatenate(arrays))


def test_many_operand_values(service: Service, run: Run) -> None:
    """The constants are 6 MB of operand values."""
    model, constants = summing_model([15_000] * 100)
    (pool,) = model.pools
    assert isinstance(pool, Memory)

    def move_to_operand_values(operand: Operand) -> Operand:
        if operand.lifetime == OperandLifeTime.CONSTANT_POOL:
            return replace(operand, lifetime=OperandLifeTime.CONSTANT_COPY)
        if operand.lifetime == OperandLifeTime.CONSTANT_COPY:
            return replace(operand, location=replace(operand.location, offset=operand.location.offset + pool.size))
        return operand

    main = replace(model.main, operands=tuple(map(move_to_operand_values, model.main.operands)))
    values = pool.view.tobytes() + bytes(model.operand_values)
    model = replace(model, main=main, pools=(), operand_values=values)
    (total,) = run(service.target, model, [np.zeros(15_000, np.float32)])
    np.testing.assert_array_equal(total, sum(constants))
