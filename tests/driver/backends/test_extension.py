"""A vendor extension with an operand type, from ModelBuilder to the backend that implements it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.client.core.arrays import ModelIO
from nnhal.types import AnyArray, DataLocation, Extension, ExtensionOperandTypeInformation, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from nnhal_driver.device import Device
from nnhal_driver.preparation.launch import GivenModel
from tests.driver.fake_backend import Fake, parts
from tests.driver.one_operation import execute, prepare

NAME = "com.example.sealed"
SEALED, SEAL, OPEN = 7, 1, 2
"""Operand type of bytes encrypted with a key, and the operations that write and read it."""


class Sealer(Backend):
    """Supports only operations of its extension with operands of its type."""

    id = "Sealer"
    version = "1"

    def supports(self, operation: OperationView) -> Support:
        if operation.extension != NAME:
            return Support("not of my extension")
        first, key = operation.operation.inputs
        sealed = first if operation.type & 0xFFFF == OPEN else operation.operation.outputs[0]
        for operand in (sealed, key):
            type_ = operation.graph.operands[operand].type
            if operation.graph.extension(type_) != NAME or type_ & 0xFFFF != SEALED:
                return Support(f"operand {operand} is not sealed")
        return Support()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return _Sealing(subgraph)

    def extensions(self) -> Sequence[Extension]:
        return (Extension(NAME, (ExtensionOperandTypeInformation(SEALED, True, 1),)),)


class _Sealing(CompiledSubgraph):
    def __init__(self, subgraph: SubgraphView) -> None:
        self.subgraph = subgraph

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        values = dict(zip(self.subgraph.inputs, inputs, strict=True))
        for view in self.subgraph.operations:
            first, key = view.operation.inputs
            source = values[first]
            assert source is not None
            result = np.ascontiguousarray(source).view(np.uint8) ^ self.subgraph.graph.constants[key]
            values[view.operation.outputs[0]] = result.view(np.float32) if view.type & 0xFFFF == OPEN else result
        for operand, output in zip(self.subgraph.outputs, outputs, strict=True):
            value = values[operand]
            assert value is not None
            output.write(value, keep=True)


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device("test", [Sealer(), Fake("B", takes=[Op.RELU])])
    yield device
    device.close()


def sealing_model(relu: bool = False, output_sealed: bool = False) -> Model:
    """Return a model that seals x with a key of 16 bytes and opens it again.

    Args:
        relu: whether the result passes a RELU and is sealed and opened once more.
        output_sealed: whether the sealed value is an output.
    """
    b = ModelBuilder()
    extension = b.extension(NAME)
    kind = extension.operand_type(SEALED)
    floats = Operand(T.TENSOR_FLOAT32, (4,))
    key = b.constant(bytes(range(16)), kind)
    value = b.input(T.TENSOR_FLOAT32, [4])
    for i in range(2 if relu else 1):
        sealed = b.add(extension.operation_type(SEAL), value, key, output=Operand(kind, (16,)))
        if output_sealed:
            b.output(sealed)
        value = b.add(extension.operation_type(OPEN), sealed, key, output=floats)
        if relu and i == 0:
            value = b.add(Op.RELU, value, output=floats)
    b.output(value)
    return b.build()


X = np.array([1, -2, 3, -4], np.float32)


def test_extension_values_pass_between_operations(device: Device) -> None:
    assert device.get_supported_extensions() == (*Sealer().extensions(),)
    outcome = prepare(sealing_model(), device)
    assert parts(outcome.placement) == [("Sealer", (0, 1))]
    np.testing.assert_array_equal(execute(outcome, [X])[1][0], X)


def test_extension_values_pass_between_partitions(device: Device) -> None:
    outcome = prepare(sealing_model(relu=True), device)
    assert parts(outcome.placement) == [("Sealer", (0, 1)), ("B", (2,)), ("Sealer", (3, 4))]
    np.testing.assert_array_equal(execute(outcome, [X])[1][0], X.clip(0))


def test_extension_values_are_model_outputs(device: Device) -> None:
    outcome = prepare(sealing_model(output_sealed=True), device)
    assert outcome.prepared_model is not None
    model_io = ModelIO(outcome.prepared_model.inputs, outcome.prepared_model.outputs, (), ())
    sealed, opened = model_io.to_outputs(outcome.prepared_model.execute_synchronously(model_io.request([X])))
    assert sealed.tobytes() == bytes(a ^ b for a, b in zip(X.tobytes(), range(16), strict=True))
    np.testing.assert_array_equal(opened, X)


def test_unlisted_types_cannot_be_model_outputs() -> None:
    class UnlistedType(Sealer):
        def extensions(self) -> Sequence[Extension]:
            return (Extension(NAME),)

    device = Device("test", [UnlistedType()])
    try:
        supported, placement = device.get_supported_operations(GivenModel(sealing_model(output_sealed=True)))
        assert supported == [False, False]
        assert "has an extension type that no backend lists" in placement.operations[0].refusals[0].reason
    finally:
        device.close()


def test_backend_of_the_extension_checks_operand_types(device: Device) -> None:
    b = ModelBuilder()
    extension = b.extension(NAME)
    x = b.input(T.TENSOR_FLOAT32, [4])
    b.output(b.add(extension.operation_type(SEAL), x, x, output=Operand(T.TENSOR_FLOAT32, (4,))))
    placed = device.get_supported_operations(GivenModel(b.build()))[1].operations[0]
    assert placed.refusals[0].reason == "operand 1 is not sealed"


def test_unused_input_may_have_an_unknown_type(device: Device) -> None:
    b = ModelBuilder()
    unknown = b.extension("com.example.unknown").operand_type(1)
    b.input(unknown, [4])
    b.output(b.add(Op.RELU, b.input(T.TENSOR_FLOAT32, [4]), output=Operand(T.TENSOR_FLOAT32, (4,))))
    prepared = prepare(b.build(), device).prepared_model
    assert prepared is not None
    model_io = ModelIO(prepared.inputs, prepared.outputs, (), ())
    for value in (bytes(4), bytes(12)):
        np.testing.assert_array_equal(
            model_io.to_outputs(prepared.execute_synchronously(model_io.request([value, X])))[0], X.clip(0)
        )
    request = model_io.request([bytes(12), X])
    argument = replace(request.inputs[0], location=DataLocation(0, 0, 11))
    prepared.execute_synchronously(replace(request, inputs=(argument, request.inputs[1])))
