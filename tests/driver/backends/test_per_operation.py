"""PerOperationBackend: workloads of extension operations, with their shapes and values of extension types."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.client.core.arrays import ModelIO
from nnhal.errors import HalError
from nnhal.types import (
    AnyArray,
    ErrorStatus,
    ExecutionConfig,
    Extension,
    ExtensionOperandTypeInformation,
    Model,
    Operand,
)
from nnhal.types import OperandType as T
from nnhal_driver.backends.api import OperationView, Support
from nnhal_driver.backends.per_operation import PerOperationBackend, Workload
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.operations.call import OperationCall, Shape
from tests.driver.fake_backend import device_of
from tests.driver.one_operation import prepare

NAME = "com.example.units"
UNIT, UNITS = 1, 2
"""Operand types: a scalar and a tensor of elements of three bytes."""
TWICE, WITH_UNIT, FIRST = 3, 4, 5

X = np.array([1, -2, 3], np.float32)


class Units(PerOperationBackend):
    """Runs operations of its extension."""

    id = "Units"
    version = "1"

    def __init__(self, workload: Workload, shapes: Callable[[OperationCall], Sequence[Shape]] | None = None) -> None:
        self.kernel, self.shapes = workload, shapes

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.extension == NAME else Support("not of my extension")

    def workload(self, operation: OperationView) -> Workload:
        return self.kernel

    def output_shapes(self, call: OperationCall) -> Sequence[Shape] | None:
        return None if self.shapes is None else self.shapes(call)

    def extensions(self) -> Sequence[Extension]:
        types = ExtensionOperandTypeInformation(UNIT, False, 3), ExtensionOperandTypeInformation(UNITS, True, 3)
        return (Extension(NAME, types),)


def twice(call: OperationCall) -> AnyArray:
    return np.asarray(call.array("input0") * 2)


def model(shape: Sequence[int] = (3,), output: Sequence[int] = (3,), operation: int = TWICE) -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, shape)
    b.output(b.add(b.extension(NAME).operation_type(operation), x, output=Operand(T.TENSOR_FLOAT32, tuple(output))))
    return b.build()


def run(device: Device, of: Model, *values: Any, profile: bool = False) -> Sequence[AnyArray]:
    prepared = prepare(of, device).prepared_model
    assert prepared is not None
    io = ModelIO(prepared.inputs, prepared.outputs, (), ())
    return io.to_outputs(prepared.execute_synchronously(io.request(values), ExecutionConfig(profile=profile)))


@pytest.fixture
def device() -> Iterator[Device]:
    with device_of(Units(twice, lambda call: [call.shape("input0")])) as device:
        yield device


@pytest.mark.parametrize("output", [(3,), (0,), ()])
def test_shapes_come_from_the_backend(device: Device, output: Sequence[int]) -> None:
    np.testing.assert_array_equal(run(device, model(output=output), X)[0], X * 2)


@pytest.mark.parametrize("output", [(3,), (0,), ()])
def test_shapes_come_from_the_results(output: Sequence[int]) -> None:
    with device_of(Units(twice)) as device:
        np.testing.assert_array_equal(run(device, model((), output), X, profile=True)[0], X * 2)


def test_shapes_are_checked_before_the_workload_runs() -> None:
    calls: list[OperationCall] = []

    def kernel(call: OperationCall) -> AnyArray:
        calls.append(call)
        return X

    with device_of(Units(kernel, lambda call: [(2, 2)])) as device:
        with pytest.raises(HalError, match=r"output 0 has shape \[2, 2\], declared \[3\]") as caught:
            run(device, model(), X)
        assert (caught.value.status, caught.value.rule, calls) == (ErrorStatus.GENERAL_FAILURE, "V-RUN-04", [])


def test_conditions_on_arguments_are_part_of_the_shapes() -> None:
    def shapes(call: OperationCall) -> Sequence[Shape]:
        call.require(len(call.shape("input0")) == 2, "input0 must be a matrix")
        return [call.shape("input0")]

    with device_of(Units(twice, shapes)) as device, pytest.raises(HalError, match="input0 must be a matrix") as caught:
        run(device, model(), X)
    assert caught.value.rule == "V-RUN-03"


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (X[:2], r"output 0 has shape \[2\], declared \[3\]"),
        ([X, X], "it gives 2 outputs; expected 1"),
        (X.astype(np.float64), "output 0 is float64; expected float32"),
    ],
)
@pytest.mark.parametrize("with_shapes", [True, False])
def test_invalid_results_fail_the_execution(result: Any, reason: str, with_shapes: bool) -> None:
    backend = Units(lambda call: result, (lambda call: [call.shape("input0")]) if with_shapes else None)
    with device_of(backend) as device, pytest.raises(HalError, match=reason) as caught:
        run(device, model(), X)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


def test_results_respect_the_limit_of_tensors() -> None:
    with device_of(Units(twice)) as unlimited:
        assert run(unlimited, model(), X)
    limited = Device("test", [Units(twice)], DeviceOptions(tensor_bytes=11))
    try:
        with pytest.raises(HalError, match="12 bytes; at most 11") as caught:
            run(limited, model(output=(0,)), X)
        assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
    finally:
        limited.close()


def with_unit(constant: bool) -> Model:
    """Return a model with a tensor and a scalar of extension types, which are inputs or constants."""
    b = ModelBuilder()
    extension = b.extension(NAME)
    unit, units = extension.operand_type(UNIT), Operand(extension.operand_type(UNITS), (2,))
    scalar = b.constant(b"abc", unit) if constant else b.input(unit)
    tensor = b.constant(b"ABCDEF", units.type) if constant else b.input(units.type, units.dimensions)
    x = b.input(T.TENSOR_FLOAT32, [3])
    swapped = b.add(extension.operation_type(WITH_UNIT), x, scalar, tensor, output=Operand(units.type, (0,)))
    b.output(swapped)
    b.output(b.add(extension.operation_type(FIRST), swapped, output=Operand(unit)))
    return b.build()


def swap(call: OperationCall) -> AnyArray:
    if call.view.type & 0xFFFF == FIRST:
        first: AnyArray = call.array("input0")[0]  # np.void, which is not an array
        return first
    scalar, tensor = call.array("input1"), call.array("input2")
    assert (scalar.dtype, scalar.shape, tensor.dtype, tensor.shape) == (np.dtype("V3"), (), np.dtype("V3"), (2,))
    assert call.view.constant("input1") is None or scalar.tobytes() == b"abc"
    return np.concatenate([tensor[::-1], scalar.reshape(1)])


@pytest.mark.parametrize("constant", [True, False])
def test_values_of_extension_types_have_one_form(constant: bool) -> None:
    with device_of(Units(swap)) as device:
        values = [X] if constant else [b"abc", b"ABCDEF", X]
        words, first = run(device, with_unit(constant), *values)
    assert (words.shape, words.tobytes(), first.shape, first.tobytes()) == ((3,), b"DEFABCabc", (), b"DEF")


def test_extension_results_need_the_size_of_their_type() -> None:
    with device_of(Units(lambda call: np.zeros(2, "V2"))) as device, pytest.raises(HalError) as caught:
        run(device, with_unit(True), X)
    assert "output 0 is |V2; expected |V3" in caught.value.reason
