"""Creators of workloads, which register themselves with the class of their backend."""

from collections.abc import Sequence

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.errors import HalError
from nnhal.types import AnyArray, Extension, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import OperationView, Support
from nnhal_driver.backends.per_operation import PerOperationBackend, Workload
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.preparation.launch import GivenModel
from tests.driver.fake_backend import device_of, parts
from tests.driver.one_operation import execute, prepare

NAME = "com.example.creators"
CUBE = 7
X = np.array([1, -2, 3], np.float32)


def backend_class() -> type[PerOperationBackend]:
    """Return a new class with creators for RELU, for TANH of rank 1, and for an operation of an extension."""

    class Registered(PerOperationBackend):
        id = "Registered"
        version = "1"

        def extensions(self) -> Sequence[Extension]:
            return (Extension(NAME),)

    @Registered.creator(Op.RELU)
    def relu(operation: OperationView) -> Workload | Support:
        return lambda call: call.array("input").clip(0) + np.float32(10)  # tells it from CpuRef

    @Registered.creator(Op.TANH, Op.LOGISTIC)
    def map_vector(operation: OperationView) -> Workload | Support:
        if len(operation.operand("input").dimensions) != 1:
            return Support("the rank must be 1")
        function = np.tanh if operation.type == Op.TANH else np.exp
        return lambda call: np.asarray(function(call.array("input")), np.float32)

    @Registered.creator(CUBE, extension=NAME, shapes=lambda call: [call.shape("input0")])
    def cube(operation: OperationView) -> Workload:
        return lambda call: np.asarray(call.array("input0") ** 3)

    return Registered


def model(*operations: int, shape: Sequence[int] = (3,)) -> Model:
    """Return a chain of operations; 0 is the operation of the extension."""
    b = ModelBuilder()
    value = b.input(T.TENSOR_FLOAT32, shape)
    for type_ in operations:
        value = b.add(
            type_ or b.extension(NAME).operation_type(CUBE), value, output=Operand(T.TENSOR_FLOAT32, tuple(shape))
        )
    b.output(value)
    return b.build()


def test_creators_run_operations() -> None:
    with device_of(backend_class()()) as device:
        outcome = prepare(model(Op.RELU, 0, Op.TANH), device)
        assert parts(outcome.placement) == [("Registered", (0, 1, 2))]
        (result,) = execute(outcome, [X])[1]
    np.testing.assert_allclose(result, np.tanh((X.clip(0) + 10) ** 3), rtol=1e-6)


def test_reasons_come_from_creators() -> None:
    with device_of(backend_class()(), CpuRef()) as device:
        _, placement = device.get_supported_operations(GivenModel(model(Op.TANH, Op.ABS, shape=(3, 1))))
        refused, unknown = placement.operations
    assert refused.refusals[0].reason == "the rank must be 1"
    assert unknown.refusals[0].reason == "Registered has no creator for it"


def test_function_for_support_is_called_instead_of_the_creator() -> None:
    class_, created = backend_class(), []

    @class_.creator(Op.ABS, supports=lambda operation: Support("" if operation.index else "only after another"))
    def create(operation: OperationView) -> Workload:
        created.append(operation.index)
        return lambda call: np.abs(call.array("input"))

    with device_of(class_(), CpuRef()) as device:
        placement = device.get_supported_operations(GivenModel(model(Op.ABS, Op.ABS)))[1]
        assert placement.operations[0].refusals[0].reason == "only after another"
        assert created == []
        prepare(model(Op.RELU, Op.ABS), device)
        assert created == [1]


def test_a_class_has_one_creator_for_each_operation() -> None:
    class_ = backend_class()
    with pytest.raises(ValueError, match="Registered has two creators for RELU"):
        class_.creator(Op.RELU)(lambda operation: Support("never"))
    with pytest.raises(ValueError, match=f"two creators for operation {CUBE} of {NAME}"):
        class_.creator(CUBE, extension=NAME)(lambda operation: Support("never"))
    with pytest.raises(ValueError, match="register creators with your own class"):
        PerOperationBackend.creator(Op.ABS)(lambda operation: Support("never"))
    backend_class()  # another class has creators of its own


def test_subclasses_inherit_and_replace_creators() -> None:
    base = backend_class()

    derived: type[PerOperationBackend] = type("Derived", (base,), {})

    @derived.creator(Op.RELU)
    def relu(operation: OperationView) -> Workload:
        return lambda call: np.negative(call.array("input"))

    with device_of(derived()) as device:
        np.testing.assert_array_equal(execute(prepare(model(Op.RELU, 0), device), [X])[1][0], (-X) ** 3)
    with device_of(base()) as device:
        np.testing.assert_array_equal(execute(prepare(model(Op.RELU), device), [X])[1][0], X.clip(0) + 10)


def test_shapes_of_a_creator_are_checked() -> None:
    class_ = backend_class()

    def kernel(call: OperationCall) -> AnyArray:
        raise AssertionError("it must not run")

    class_.creator(CUBE + 1, extension=NAME, shapes=lambda call: [(4,)])(lambda operation: kernel)
    b = ModelBuilder()
    type_ = b.extension(NAME).operation_type(CUBE + 1)
    b.output(b.add(type_, b.input(T.TENSOR_FLOAT32, [3]), output=Operand(T.TENSOR_FLOAT32, (3,))))
    with device_of(class_()) as device, pytest.raises(HalError, match=r"output 0 has shape \[4\], declared \[3\]"):
        execute(prepare(b.build(), device), [X])
