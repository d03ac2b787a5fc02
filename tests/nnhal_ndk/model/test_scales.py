"""Scales that no device accepts: the program may add such an operation, and learns that no device supports it."""

import ctypes
from collections.abc import Sequence

import pytest

from nnhal.types import OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, handles, operand_type, uint32s
from tests.nnhal_ndk.programs import device, expect

Q, INT32 = OperandType.TENSOR_QUANT8_ASYMM_SIGNED, OperandType.INT32


def _model(library: NdkLibrary, scales: Sequence[float]) -> int:
    """Return a model of a chain of MUL: each one squares its input, and has an output of the next scale."""
    model = library.create("Model_create")
    expect(library.Model_addOperand(model, operand_type(INT32, ())))
    expect(library.Model_setOperandValue(model, 0, ctypes.byref(ctypes.c_int32(0)), 4))
    for scale in scales:
        expect(library.Model_addOperand(model, operand_type(Q, (1, 4), scale)))
    for i in range(1, len(scales)):
        expect(library.Model_addOperation(model, OperationType.MUL, 3, uint32s(i, i, 0), 1, uint32s(i + 1)))
    expect(library.Model_identifyInputsAndOutputs(model, 1, uint32s(1), 1, uint32s(len(scales))))
    expect(library.Model_finish(model))
    return model


def _supported(library: NdkLibrary, model: int, count: int) -> list[bool]:
    flags = (ctypes.c_bool * count)()
    listed = handles(device(library))
    expect(library.Model_getSupportedOperationsForDevices(model, listed, 1, flags))
    return list(flags)


@pytest.mark.parametrize(
    ("scales", "supported"),
    [
        ((0.5, 0.5, 0.5), [True, True]),
        ((0.5, 0.5, 0.25), [True, False]),  # 0.25 is not above 0.5 * 0.5
        ((0.5, 0.25, 0.5), [False, True]),
        ((0.5, 0.25, 0.5, 0.25), [False, True, False]),
        ((0.5, 0.25), [False]),
    ],
)
def test_scales_are_checked_at_preparation(library: NdkLibrary, scales: Sequence[float], supported: list[bool]) -> None:
    model = _model(library, scales)
    assert _supported(library, model, len(supported)) == supported
    compilation = library.create("Compilation_createForDevices", model, handles(device(library)), 1)
    code = library.Compilation_finish(compilation)
    assert ResultCode(code).name == ("NO_ERROR" if all(supported) else "BAD_DATA")
    library.Compilation_free(compilation)
    library.Model_free(model)
