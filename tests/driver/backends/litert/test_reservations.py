"""Memory that LiteRT needs for a model: reserved before it is allocated, and bounded by what the client sent."""

import gc
import threading

import numpy as np
import pytest

from nnhal.errors import HalError, limit_exceeded
from nnhal.types import DataLocation, ErrorStatus, Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import execute

pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")

ELEMENTS = 50_000
WINDOW = 4 * ELEMENTS


class Meter:
    """Reserves memory up to a limit, and counts it."""

    def __init__(self, limit: int = 2**40) -> None:
        self.limit = limit
        self.used = self.highest = 0

    def __call__(self, size: int) -> object:
        if self.used + size > self.limit:
            raise limit_exceeded("service_memory_bytes", f"{size} bytes")
        self.used += size
        self.highest = max(self.highest, self.used)
        return _Bytes(self, size)


class _Bytes:
    def __init__(self, meter: Meter, size: int) -> None:
        self._meter, self._size = meter, size

    def __del__(self) -> None:
        self._meter.used -= self._size


def weights(count: int) -> Model:
    """Return FULLY_CONNECTED operations in parallel, whose weights are windows on the same bytes."""
    values = np.arange(ELEMENTS + 4 * count, dtype=np.float32).tobytes()
    columns = ELEMENTS // 2
    operands = [
        Operand(T.TENSOR_FLOAT32, (1, columns), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.TENSOR_FLOAT32, (2,), lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 8)),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, len(values), 4)),
    ]
    operations = []
    for number in range(count):
        location = DataLocation(0, 16 * number, WINDOW)
        operands += [
            Operand(T.TENSOR_FLOAT32, (2, columns), lifetime=OperandLifeTime.CONSTANT_COPY, location=location),
            Operand(T.TENSOR_FLOAT32, (1, 2), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT),
        ]
        operations.append(Operation(Op.FULLY_CONNECTED, (0, len(operands) - 2, 1, 2), (len(operands) - 1,)))
    outputs = tuple(operation.outputs[0] for operation in operations)
    return Model(Subgraph(tuple(operands), tuple(operations), (0,), outputs), operand_values=values + bytes(4))


def windows(count: int, step: int) -> Model:
    """Return a chain of ADD, whose constants are windows on the same bytes, `step` elements apart."""
    values = np.arange(ELEMENTS + count * step, dtype=np.float32).tobytes()
    operands = [
        Operand(T.TENSOR_FLOAT32, (ELEMENTS,), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, len(values), 4)),
    ]
    operations = []
    value = 0
    for number in range(count):
        is_last = number == count - 1
        location = DataLocation(0, 4 * step * number, WINDOW)
        operands += [
            Operand(T.TENSOR_FLOAT32, (ELEMENTS,), lifetime=OperandLifeTime.CONSTANT_COPY, location=location),
            Operand(
                T.TENSOR_FLOAT32,
                (ELEMENTS,),
                lifetime=OperandLifeTime.SUBGRAPH_OUTPUT if is_last else OperandLifeTime.TEMPORARY_VARIABLE,
            ),
        ]
        operations.append(Operation(Op.ADD, (value, len(operands) - 2, 1), (len(operands) - 1,)))
        value = len(operands) - 1
    return Model(Subgraph(tuple(operands), tuple(operations), (0,), (value,)), operand_values=values + bytes(4))


def prepare(model: Model, meter: Meter) -> tuple[Device, Outcome]:
    from nnhal_driver.backends.litert.backend import CpuAcc

    device, outcomes, done = Device("d", [CpuAcc(), CpuRef()]), list[Outcome](), threading.Event()

    def notify(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    launch_preparation(device, model, notify, reserve=meter)
    assert done.wait(60)
    return device, outcomes.pop()


def backends(prepared: PreparedModel) -> set[str]:
    return {partition.backend for partition in prepared.placement.partitions}


def test_equal_windows_are_in_the_file_once() -> None:
    few, many = Meter(), Meter()
    for meter, count in ((few, 2), (many, 40)):
        device, outcome = prepare(windows(count, 0), meter)
        assert outcome.prepared_model is not None
        device.close()
    assert many.highest - few.highest < WINDOW * 2 + 40 * 2**13


def test_overlapping_windows_are_in_the_file_once_for_each_alignment() -> None:
    few, many = Meter(), Meter()
    for meter, count in ((few, 4), (many, 80)):
        device, outcome = prepare(windows(count, 1), meter)
        assert outcome.prepared_model is not None and backends(outcome.prepared_model) == {"CpuAcc"}
        result = execute(outcome, [np.ones(ELEMENTS, np.float32)])[1][0]
        np.testing.assert_array_equal(result, 1 + count * np.arange(ELEMENTS) + count * (count - 1) // 2)
        device.close()
    assert many.highest - few.highest < WINDOW + 80 * 2**13


def test_packed_forms_of_overlapping_weights_are_reserved() -> None:
    meter = Meter()
    device, outcome = prepare(weights(20), meter)
    assert outcome.prepared_model is not None and backends(outcome.prepared_model) == {"CpuAcc"}
    assert 20 * WINDOW < meter.used < 25 * WINDOW
    del outcome
    device.close()
    gc.collect()
    assert meter.used == 0


def test_client_that_reaches_its_limit_is_told() -> None:
    """The model is not prepared on a slower backend that needs less."""
    meter = Meter(20 * WINDOW)
    device, outcome = prepare(weights(20), meter)
    assert outcome.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert "service_memory_bytes" in outcome.reason
    assert meter.highest < 20 * WINDOW
    device.close()
    gc.collect()
    assert meter.used == 0


def test_structure_is_reserved_at_launch() -> None:
    with pytest.raises(HalError) as caught:
        prepare(windows(20, 0), Meter(1000))
    assert caught.value.limit == "service_memory_bytes"
