"""Depthwise convolutions with more channels than LiteRT's own kernel survives."""

from threading import Thread

import numpy as np
import pytest

from nnhal.types import AnyArray, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.litert.backend import CpuAcc
from nnhal_driver.device import Device
from nnhal_driver.graph import build_graphs
from tests.driver.backends.litert.support.models import one_operation
from tests.driver.backends.litert.support.samples import Case
from tests.driver.one_operation import execute, execute_profiled, int32, prepare, sample, tensor

LIMITS = {T.TENSOR_FLOAT32: 4832, T.TENSOR_FLOAT16: 4832, T.TENSOR_QUANT8_ASYMM: 2048}
EXECUTION_S = 120
"""Seconds after which an execution hangs."""


def depthwise(type_: T, channels: int, constant: tuple[int, ...] = ()) -> Model:
    """Return a depthwise convolution of one pixel with 3 x 3 filters. `constant`: inputs that are constants."""
    scale = 0.5 if type_ == T.TENSOR_QUANT8_ASYMM else 0.0
    image, weights = tensor(type_, (1, 3, 3, channels), scale), tensor(type_, (1, 3, 3, channels), scale)
    bias = tensor(T.TENSOR_INT32 if scale else type_, (channels,), scale * scale)
    rng = np.random.default_rng(1)
    inputs = [(operand, sample(rng, operand)) for operand in (image, weights, bias)]
    out = tensor(type_, (), 16.0 if scale else 0.0)
    arguments = [*inputs, *map(int32, (2, 1, 1, 1, 0))]
    return one_operation(Case(Op.DEPTHWISE_CONV_2D, arguments, [out], frozenset(constant)))[0]


@pytest.mark.parametrize("type_", LIMITS, ids=lambda type_: type_.name)
@pytest.mark.parametrize("constant", [(), (1,), (2,)], ids=["none", "filter", "bias"])
def test_more_channels_are_refused(type_: T, constant: tuple[int, ...]) -> None:
    limit = LIMITS[type_]
    (most,), (more,) = (build_graphs(depthwise(type_, n, constant))[0].operations for n in (limit, limit + 1))
    assert CpuAcc().supports(most)
    answer = CpuAcc().supports(more)
    assert not answer
    assert answer.reason == f"the filter has {limit + 1} channels, and filter or bias are not constant"
    assert answer.nearest == f"at most {limit} channels, or a constant filter and bias"


def run(model: Model, backends: list[str]) -> tuple[list[str], AnyArray]:
    """Execute a model of one operation, with and without profiling. Return its backends and its output."""
    device = Device("test", registry.create(backends))
    outcome = prepare(model, device)
    assert outcome.prepared_model is not None, outcome.reason
    arrays = [sample(np.random.default_rng(2), operand) for operand in outcome.prepared_model.inputs]
    results: list[AnyArray] = []

    def work() -> None:
        results.append(execute(outcome, arrays)[1][0])
        execute_profiled(outcome, arrays)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(EXECUTION_S)
    assert not thread.is_alive(), "the kernel does not end"
    device.close()
    return [partition.backend for partition in outcome.placement.partitions], results[0]


@pytest.mark.parametrize("type_", LIMITS, ids=lambda type_: type_.name)
@pytest.mark.parametrize(("constant", "backend"), [((), "CpuRef"), ((1, 2), "CpuAcc")], ids=["inputs", "constants"])
def test_more_channels_are_computed(type_: T, constant: tuple[int, ...], backend: str) -> None:
    model = depthwise(type_, LIMITS[type_] + 1, constant)
    backends, output = run(model, ["CpuAcc", "CpuRef"])
    assert backends == [backend]
    _, expected = run(model, ["CpuRef"])
    tolerance = 1 if output.dtype.kind == "u" else 0.05
    np.testing.assert_allclose(output.astype(np.float32), expected.astype(np.float32), atol=tolerance, rtol=0.01)
