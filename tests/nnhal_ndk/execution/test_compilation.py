"""Result codes of compilations that no device can do."""

import pytest

from nnhal.types import ErrorStatus, Operand, OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.results import code_of_error
from tests.nnhal_ndk.execution.in_process import InProcessDevice


def _model() -> NdkModel:
    model = NdkModel()
    for _ in range(2):
        model.add_operand(Operand(OperandType.TENSOR_FLOAT32, (2,), 0.0, 0))
    model.add_operation(OperationType.FLOOR, [0], [1])
    model.identify([0], [1])
    model.finish()
    return model


@pytest.mark.parametrize(
    ("status", "supported", "code"),
    [
        (ErrorStatus.GENERAL_FAILURE, [False, False], ResultCode.BAD_DATA),
        (ErrorStatus.GENERAL_FAILURE, [False, True], ResultCode.OP_FAILED),
        (ErrorStatus.INVALID_ARGUMENT, [True, True], ResultCode.BAD_DATA),
        (ErrorStatus.MISSED_DEADLINE_PERSISTENT, [True, True], ResultCode.MISSED_DEADLINE_PERSISTENT),
        (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, [True, True], ResultCode.RESOURCE_EXHAUSTED_TRANSIENT),
    ],
)
def test_a_failed_compilation_tells_why(status: ErrorStatus, supported: list[bool], code: ResultCode) -> None:
    devices = [InProcessDevice(() if each else {OperationType.FLOOR}) for each in supported]
    for device in devices:
        device.preparation_error = status
    compilation = NdkCompilation(_model(), [device.as_device for device in devices])
    with pytest.raises(Exception) as failure:
        compilation.finish()
    assert code_of_error(failure.value) == code
    with pytest.raises(Exception, match="has failed") as used:
        _ = compilation.plan
    assert code_of_error(used.value) == ResultCode.BAD_STATE
