"""A vendor extension with an operand type of its own, from ModelBuilder to the backend that owns it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from driver.device import Device
from nnhal.builder import ModelBuilder
from nnhal.tensors import Ends
from nnhal.types import AnyArray, DataLocation, Extension, ExtensionOperandTypeInformation, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import execute, prepare
from tests.driver.test_placement import Fake, parts

NAME = "com.example.sealed"
SEALED, SEAL, OPEN = 7, 1, 2
"""An operand type: bytes, each changed by a key. The operations that make and read it."""


class Sealer(Backend):
    """Takes operations of its extension on operands of its type, and no others."""

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
            given = values[first]
            assert given is not None
            changed = np.ascontiguousarray(given).view(np.uint8) ^ self.subgraph.graph.constants[key]
            values[view.operation.outputs[0]] = changed.view(np.float32) if view.type & 0xFFFF == OPEN else changed
        for operand, output in zip(self.subgraph.outputs, outputs, strict=True):
            value = values[operand]
            assert value is not None
            output.write(value, keep=True)


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device("test", [Sealer(), Fake("B", takes=[Op.RELU])])
    yield made
    made.close()


def sealed_and_opened(between: bool = False, deliver: bool = False) -> Model:
    """x -> sealed -> y, with 16 bytes for a key. `between`: y goes through a RELU and is sealed and opened again."""
    b = ModelBuilder()
    extension = b.extension(NAME)
    kind = extension.operand_type(SEALED)
    floats = Operand(T.TENSOR_FLOAT32, (4,))
    key = b.constant(bytes(range(16)), kind)
    value = b.input(T.TENSOR_FLOAT32, [4])
    for turn in range(2 if between else 1):
        hidden = b.add(extension.operation_type(SEAL), value, key, output=Operand(kind, (16,)))
        if deliver:
            b.output(hidden)
        value = b.add(extension.operation_type(OPEN), hidden, key, output=floats)
        if between and turn == 0:
            value = b.add(Op.RELU, value, output=floats)
    b.output(value)
    return b.build()


X = np.array([1, -2, 3, -4], np.float32)


def test_values_of_an_extension_type_pass_between_its_operations(device: Device) -> None:
    assert device.get_supported_extensions() == (*Sealer().extensions(),)
    outcome = prepare(sealed_and_opened(), device)
    assert parts(outcome.placement) == [("Sealer", (0, 1))]
    np.testing.assert_array_equal(execute(outcome, [X])[1][0], X)


def test_they_pass_between_partitions_too(device: Device) -> None:
    outcome = prepare(sealed_and_opened(between=True), device)
    assert parts(outcome.placement) == [("Sealer", (0, 1)), ("B", (2,)), ("Sealer", (3, 4))]
    np.testing.assert_array_equal(execute(outcome, [X])[1][0], X.clip(0))


def test_they_leave_the_model(device: Device) -> None:
    outcome = prepare(sealed_and_opened(deliver=True), device)
    assert outcome.prepared_model is not None
    ends = Ends(outcome.prepared_model.inputs, outcome.prepared_model.outputs, (), ())
    sealed, opened = ends.results(outcome.prepared_model.execute_synchronously(ends.request([X])))
    assert sealed.tobytes() == bytes(a ^ b for a, b in zip(X.tobytes(), range(16), strict=True))
    np.testing.assert_array_equal(opened, X)


def test_they_stay_where_their_size_is_not_known() -> None:
    class Silent(Sealer):
        def extensions(self) -> Sequence[Extension]:
            return (Extension(NAME),)

    device = Device("test", [Silent()])
    try:
        supported, placement = device.get_supported_operations(sealed_and_opened(deliver=True))
        assert supported == [False, False]
        assert "has an extension type that no backend lists" in placement.operations[0].refusals[0].reason
    finally:
        device.close()


def test_the_owner_judges_the_types_of_operands(device: Device) -> None:
    b = ModelBuilder()
    extension = b.extension(NAME)
    x = b.input(T.TENSOR_FLOAT32, [4])
    b.output(b.add(extension.operation_type(SEAL), x, x, output=Operand(T.TENSOR_FLOAT32, (4,))))
    placed = device.get_supported_operations(b.build())[1].operations[0]
    assert placed.refusals[0].reason == "operand 1 is not sealed"


def test_an_input_of_an_unknown_type_that_nobody_reads(device: Device) -> None:
    b = ModelBuilder()
    unknown = b.extension("com.example.unknown").operand_type(1)
    b.input(unknown, [4])
    b.output(b.add(Op.RELU, b.input(T.TENSOR_FLOAT32, [4]), output=Operand(T.TENSOR_FLOAT32, (4,))))
    prepared = prepare(b.build(), device).prepared_model
    assert prepared is not None
    ends = Ends(prepared.inputs, prepared.outputs, (), ())
    for value in (bytes(4), bytes(12)):
        np.testing.assert_array_equal(
            ends.results(prepared.execute_synchronously(ends.request([value, X])))[0], X.clip(0)
        )
    request = ends.request([bytes(12), X])
    at = replace(request.inputs[0], location=DataLocation(0, 0, 11))
    prepared.execute_synchronously(replace(request, inputs=(at, request.inputs[1])))
