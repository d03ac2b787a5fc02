"""Result codes of compilations that no device can do."""

from concurrent.futures import Future
from typing import Any, cast

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.model.operand_type import GivenType
from nnhal_ndk.results import code_of_error


class _FailingDevice:
    """Device that prepares nothing. It stands for its `hal`, too."""

    def __init__(self, status: ErrorStatus, supported: bool) -> None:
        self._status = status
        self._supported = supported
        self.hal = self

    def prepare(self, *_: object, **__: object) -> "Future[Any]":
        failed: Future[Any] = Future()
        failed.set_exception(HalError(self._status, "the device fails"))
        return failed

    def supported_operations(self, _: object) -> list[bool]:
        return [self._supported]


def _model() -> NdkModel:
    model = NdkModel()
    for _ in range(2):
        model.add_operand(GivenType(OperandType.TENSOR_FLOAT32, (2,), 0.0, 0))
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
    devices = [cast(NdkDevice, _FailingDevice(status, each)) for each in supported]
    compilation = NdkCompilation(_model(), devices)
    with pytest.raises(Exception) as failure:
        compilation.finish()
    assert code_of_error(failure.value) == code
    with pytest.raises(Exception, match="has failed") as used:
        _ = compilation.plan
    assert code_of_error(used.value) == ResultCode.BAD_STATE
