"""Types of buffers whose roles have operand types of extensions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from nnhal.errors import HalError
from nnhal.types import BufferDesc, BufferRole, ErrorStatus, ExtensionOperandTypeInformation, Operand
from nnhal_driver.extension_types import ExtensionTypes, ValueType
from nnhal_driver.validation.buffer import AllocationRequest, ListedRole, validate_allocation

TENSOR, SCALAR = ExtensionOperandTypeInformation(3, True, 5), ExtensionOperandTypeInformation(4, False, 5)


@dataclass(frozen=True)
class Model:
    """Model with one input and one output."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    extension_types: ExtensionTypes = field(default_factory=dict)
    extension_names: Mapping[int, str] = field(default_factory=dict)


def model(prefix: int, name: str, dimensions: tuple[int, ...] = (2,), number: int = 3) -> Model:
    """Return a model with an operand type of an extension."""
    types = {prefix << 16 | info.type: info for info in (TENSOR, SCALAR)}
    operand = Operand(prefix << 16 | number, dimensions)
    return Model((operand,), (operand,), types, {prefix: name})


def validate(*models: Model, dimensions: tuple[int, ...] = ()) -> ValueType:
    """Allocate a buffer for the inputs of models."""
    roles = [ListedRole(False, i, BufferRole(i, 0)) for i in range(len(models))]
    return validate_allocation(AllocationRequest(BufferDesc(dimensions), models, roles))


def rejection(*models: Model, dimensions: tuple[int, ...] = ()) -> tuple[int, str]:
    """Return status and rule of an allocation that is rejected."""
    with pytest.raises(HalError) as caught:
        validate(*models, dimensions=dimensions)
    return caught.value.status, caught.value.rule


def test_size_is_that_of_the_elements() -> None:
    tensor = validate(model(1, "com.a", (0, 2)), dimensions=(3, 0))
    assert (tensor.operand.dimensions, tensor.byte_size((3, 2)), tensor.is_scalar) == ((3, 2), 30, False)
    assert not validate(model(1, "com.a", ())).is_fully_specified(())
    scalar = validate(model(1, "com.a", (), 4))
    assert (scalar.byte_size(()), scalar.is_scalar, scalar.is_fully_specified(())) == (5, True, True)


def test_extension_is_identified_by_its_name() -> None:
    assert validate(model(1, "com.a"), model(2, "com.a")).byte_size((2,)) == 10
    assert rejection(model(1, "com.a"), model(1, "com.b")) == (ErrorStatus.INVALID_ARGUMENT, "V-ALLOC-05")
    assert rejection(model(1, "com.a", ()), model(1, "com.a", (), 4)) == (ErrorStatus.INVALID_ARGUMENT, "V-ALLOC-05")


def test_scalar_has_no_dimensions() -> None:
    scalar = model(1, "com.a", (), 4)
    assert rejection(scalar, dimensions=(1,)) == (ErrorStatus.INVALID_ARGUMENT, "V-ALLOC-06")


def test_type_of_unknown_size_is_not_supported() -> None:
    unknown = model(1, "com.a", number=9)
    assert rejection(unknown) == (ErrorStatus.GENERAL_FAILURE, "V-ALLOC-07")
