"""Helpers that run models of one operation on a device in this process."""

import queue
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from nnhal.client.core.arrays import ModelIO
from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    ExecutionConfig,
    ExecutionResult,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Request,
    RequestArgument,
    ReturnedPool,
    Subgraph,
    SymmPerChannelQuantParams,
    is_fully_specified,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.reference.kernel import KERNELS
from nnhal_driver.device import Device
from nnhal_driver.graph import build_graphs
from nnhal_driver.operations import infer
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.launches import launch_preparation


def tensor(
    type_: T, shape: Sequence[int] = (), scale: float = 0.0, zero_point: int = 0, channels: Sequence[float] = ()
) -> Operand:
    """Return an operand. `channels` are scales along dimension 0, for per-channel types."""
    params = SymmPerChannelQuantParams(tuple(float(np.float32(s)) for s in channels)) if channels else None
    return Operand(type_, tuple(shape), float(np.float32(scale)), zero_point, extra_params=params)


Value = tuple[Operand, object]
"""An argument: its operand, and its value or None for an omitted one."""


def int32(value: int) -> Value:
    """Return an INT32 scalar."""
    return Operand(T.INT32), value


def float32(value: float) -> Value:
    """Return a FLOAT32 scalar."""
    return Operand(T.FLOAT32), value


def boolean(value: bool) -> Value:
    """Return a BOOL scalar."""
    return Operand(T.BOOL), value


def float_tensor(values: object) -> Value:
    """Return a TENSOR_FLOAT32 with its shape."""
    return tensor(T.TENSOR_FLOAT32, np.shape(np.asarray(values))), values


def int_tensor(values: object) -> Value:
    """Return a TENSOR_INT32 with its shape."""
    return tensor(T.TENSOR_INT32, np.shape(np.asarray(values))), values


@cache
def device(backend: str = "CpuRef") -> Device:
    """Return the device that tests share."""
    return Device("test", registry.create([backend]))


def model_of(type_: Op, inputs: Sequence[Value], outputs: Sequence[Operand], *, constants: bool = True) -> Model:
    """Return a model of one operation.

    Scalars are constants. Tensors are constants unless `constants` is False. None becomes NO_VALUE.
    """
    data = bytearray()
    operands = []
    for operand, value in inputs:
        if value is None:
            operands.append(replace(operand, lifetime=OperandLifeTime.NO_VALUE))
        elif constants or operand.type in (T.INT32, T.FLOAT32, T.FLOAT16, T.BOOL):
            raw = np.asarray(value, DTYPES[operand.type]).tobytes()
            location = DataLocation(0, len(data), len(raw))
            operands.append(replace(operand, lifetime=OperandLifeTime.CONSTANT_COPY, location=location))
            data += raw
        else:
            operands.append(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT))
    operands += [replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT) for operand in outputs]
    count = len(inputs)
    operation = Operation(type_, tuple(range(count)), tuple(range(count, len(operands))))
    model_inputs = tuple(i for i, operand in enumerate(operands) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT)
    return Model(Subgraph(tuple(operands), (operation,), model_inputs, operation.outputs), operand_values=bytes(data))


def prepare(model: Model, on: Device | None = None) -> Outcome:
    """Prepare a model and wait for the callback."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    launch_preparation(on or device(), model, outcomes.put)
    return outcomes.get(timeout=60)


def execute(outcome: Outcome, arrays: Sequence[AnyArray | None]) -> tuple[ExecutionResult, list[AnyArray]]:
    """Execute a prepared model. Output buffers have the required size."""
    prepared = outcome.prepared_model
    assert prepared is not None, outcome.reason
    pools: list[Memory | ReturnedPool] = []
    arguments = []
    for operand, array in zip(prepared.inputs, arrays, strict=True):
        if array is None:
            arguments.append(RequestArgument(has_no_value=True))
            continue
        dimensions = () if is_fully_specified(operand.type, operand.dimensions) else array.shape
        arguments.append(RequestArgument(False, DataLocation(len(pools), 0, array.nbytes), dimensions))
        pools.append(Memory.of(np.ascontiguousarray(array)))
    results = (RequestArgument(False, DataLocation(len(pools))),) * len(prepared.outputs)
    result = prepared.execute_synchronously(Request(tuple(arguments), results, (*pools, ReturnedPool())))
    arrays_out = []
    for operand, data, shape in zip(prepared.outputs, result.returned, result.output_shapes, strict=True):
        assert data is not None
        arrays_out.append(data.view(DTYPES[operand.type]).reshape(shape.dimensions))
    return result, arrays_out


def execute_profiled(outcome: Outcome, arrays: Sequence[AnyArray]) -> ExecutionResult:
    """Execute a prepared model with profiling."""
    prepared = outcome.prepared_model
    assert prepared is not None, outcome.reason
    request = ModelIO(prepared.inputs, prepared.outputs, (), ()).request(arrays)
    return prepared.execute_synchronously(request, ExecutionConfig(profile=True))


def run(type_: Op, inputs: Sequence[Value], outputs: Sequence[Operand], *, constants: bool = False) -> list[AnyArray]:
    """Run one operation, with tensors as model inputs or as constants, and return its outputs.

    Raises:
        HalError: preparation or execution failed.
    """
    outcome = prepare(model_of(type_, inputs, outputs, constants=constants))
    arrays = []
    if not constants:
        scalars = (T.INT32, T.FLOAT32, T.FLOAT16, T.BOOL)
        arrays = [np.asarray(v, DTYPES[o.type]) for o, v in inputs if v is not None and o.type not in scalars]
    return execute(outcome, arrays)[1]


def run_kernel(type_: Op, inputs: Sequence[Value], outputs: Sequence[Operand]) -> list[AnyArray]:
    """Infer shapes and run CpuRef's kernel without a device. Unlike in a request, tensors may be empty.

    Raises:
        HalError: an [execution] constraint is broken.
    """
    view = build_graphs(model_of(type_, inputs, outputs, constants=False))[0].operations[0]
    values = [None if value is None else np.asarray(value, DTYPES[operand.type]) for operand, value in inputs]
    call = OperationCall(view, [*values, *(None for _ in outputs)], {})
    shapes = infer(call, [operand.dimensions for operand in outputs])
    result = KERNELS[type_](call)
    arrays = [result] if isinstance(result, np.ndarray) else list(result)
    assert [array.shape for array in arrays] == shapes
    return arrays


def sample(rng: np.random.Generator, operand: Operand) -> AnyArray:
    """Return random values of an operand: normal floats, stored 8-bit values, or integers in -100..100."""
    dtype = DTYPES[operand.type]
    if dtype.kind == "f":
        return rng.standard_normal(operand.dimensions).astype(dtype)
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype.str).min, np.iinfo(dtype.str).max)
    if dtype.itemsize > 1:
        low, high = -100, 100
    return rng.integers(low, high, operand.dimensions, endpoint=True).astype(dtype)
