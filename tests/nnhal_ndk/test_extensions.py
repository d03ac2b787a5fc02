"""Vendor extensions through the library."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal.tflite
from nnhal import wire
from nnhal.litert_extension import NAME, SUBMODEL_BYTES
from nnhal.types import AnyArray
from nnhal_ndk.api.constants import ResultCode
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, operand_type
from nnhal_tools.conformance.ndk.model import LibraryModel
from tests.nnhal.tflite.build import Op, Tensor, build, options
from tests.nnhal.tflite.region import squaring_file
from tests.nnhal_ndk.programs import Program, device, expect

LITERT = ctypes.c_char_p(NAME.encode())
OTHER = ctypes.c_char_p(b"com.example.unknown")
NO_TEXT = ctypes.c_char_p(b"\xff")


@pytest.fixture
def model(library: NdkLibrary) -> Iterator[int]:
    handle = library.create("Model_create")
    yield handle
    library.Model_free(handle)


def type_of(library: NdkLibrary, model: int, name: ctypes.c_char_p, code: int) -> int:
    """Return the number of an operand type, which is that of the operation with the same number too."""
    numbers = []
    for function in ("Model_getExtensionOperandType", "Model_getExtensionOperationType"):
        number = ctypes.c_int32()
        library.call(function, model, name, code, ctypes.byref(number))
        numbers.append(number.value)
    assert numbers[0] == numbers[1]
    return numbers[0]


def test_a_device_tells_which_extensions_it_supports(library: NdkLibrary) -> None:
    answers = []
    for name in (LITERT, OTHER):
        supported = ctypes.c_bool()
        expect(library.Device_getExtensionSupport(device(library), name, ctypes.byref(supported)))
        answers.append(supported.value)
    assert answers == [True, False]


def test_types_of_an_extension_share_a_prefix(library: NdkLibrary, model: int) -> None:
    first, second, other = (
        type_of(library, model, name, code) for name, code in ((LITERT, 3), (LITERT, 4), (OTHER, 3))
    )
    assert second == first + 1
    assert (first & 0xFFFF, other & 0xFFFF) == (3, 3)
    assert len({0, first >> 16, other >> 16}) == 3
    assert type_of(library, model, LITERT, 3) == first


@pytest.mark.parametrize("function", ["Model_getExtensionOperandType", "Model_getExtensionOperationType"])
def test_a_name_must_be_text(library: NdkLibrary, model: int, function: str) -> None:
    assert library.number(function, model, NO_TEXT, 0)[0] == ResultCode.BAD_DATA


def test_operands_need_a_type_that_a_device_has(library: NdkLibrary, model: int) -> None:
    for type_ in (type_of(library, model, OTHER, 0), type_of(library, model, LITERT, 999), 0x7FFF_0000):
        expect(library.Model_addOperand(model, operand_type(type_, (2,))), ResultCode.BAD_DATA)
    expect(library.Model_addOperand(model, operand_type(type_of(library, model, LITERT, 1), (2,))))


def test_operands_of_an_extension_have_data(library: NdkLibrary, model: int) -> None:
    type_ = type_of(library, model, LITERT, SUBMODEL_BYTES)
    expect(library.Model_addOperand(model, operand_type(type_, (2,))))
    expect(library.Model_addOperand(model, operand_type(3, (2,))))
    data = ctypes.create_string_buffer(b"parameters")
    expect(library.Model_setOperandExtensionData(model, 0, data, 10))
    expect(library.Model_setOperandExtensionData(model, 0, None, 0))
    expect(library.Model_setOperandExtensionData(model, 0, None, 1), ResultCode.UNEXPECTED_NULL)
    expect(library.Model_setOperandExtensionData(model, 1, data, 10), ResultCode.BAD_DATA)
    expect(library.Model_setOperandExtensionData(model, 2, data, 10), ResultCode.BAD_DATA)
    with Program.compiled(library) as program:
        expect(library.Model_setOperandExtensionData(program.model, 0, data, 10), ResultCode.BAD_STATE)


def test_a_region_of_the_litert_extension_runs(library: NdkLibrary, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 3
    np.testing.assert_array_equal(run(library, tmp_path, squaring_file(), x), -(x * x))


def test_inputs_and_outputs_have_types_of_an_extension(library: NdkLibrary, tmp_path: Path) -> None:
    x, y = (Tensor((2, 3), "INT64", name=name) for name in "xy")
    file = build(Op("MUL", [x, x], [y], options("Mul")), outputs=[y])
    value = np.arange(6).reshape(2, 3) << 20
    np.testing.assert_array_equal(run(library, tmp_path, file, value), value * value)


def run(library: NdkLibrary, folder: Path, file: bytes, x: AnyArray) -> AnyArray:
    """Run a .tflite file with one input and one output of the same type and shape."""
    path = folder / "model.tflite"
    path.write_bytes(file)
    result = np.zeros_like(x)
    with LibraryModel(library, wire.model_message(nnhal.tflite.load(path))) as model:
        assert all(model.supported)
        execution = library.create("Execution_create", model.compile())
        expect(library.Execution_setInput(execution, 0, None, x.ctypes.data, x.nbytes))
        expect(library.Execution_setOutput(execution, 0, None, result.ctypes.data, result.nbytes))
        expect(library.Execution_compute(execution))
        library.Execution_free(execution)
    return result


def test_attributes_are_checked(library: NdkLibrary) -> None:
    data = ctypes.create_string_buffer(b"value")
    with Program.compiled(library, finish=False) as program:
        for code in (ResultCode.NO_ERROR, ResultCode.BAD_DATA):
            expect(library.Compilation_addExtensionAttribute(program.compilation, LITERT, 1, data, 5), code)
        expect(library.Compilation_finish(program.compilation))
        added = library.Compilation_addExtensionAttribute(program.compilation, LITERT, 2, None, 0)
        expect(added, ResultCode.BAD_STATE)
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        for code in (ResultCode.NO_ERROR, ResultCode.BAD_DATA):
            expect(library.Execution_addExtensionAttribute(execution, LITERT, 1, data, 5), code)
        expect(library.Execution_compute(execution))
        expect(library.Execution_addExtensionAttribute(execution, LITERT, 2, data, 5), ResultCode.BAD_STATE)
    with Program.compiled(library, for_device=False, finish=False) as program:
        added = library.Compilation_addExtensionAttribute(program.compilation, LITERT, 1, data, 5)
        expect(added, ResultCode.BAD_DATA)
