"""Values of requests as arrays."""

from unittest.mock import Mock

import numpy as np
import pytest

from nnhal.types import DataLocation, Memory, Operand, OperandType, Request, RequestArgument, ReturnedPool
from nnhal_driver.backends import division
from nnhal_driver.execution import request_binding
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("writable", [False, True])
def test_large_inputs_are_copied_in_blocks(private: bool, writable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only inputs that the client may change meanwhile are copied, and a deadline can end the copy."""
    for module, name, size in ((request_binding, "LARGE", 10), (division, "LARGE", 10), (division, "BLOCK", 9)):
        monkeypatch.setattr(module, name, size)
    values = np.arange(36, dtype=np.float32)
    values.flags.writeable = writable
    operand, check = Operand(OperandType.TENSOR_FLOAT32, (4, 9)), Mock()
    arguments = RequestArgument(False, DataLocation(0, 0, 144)), RequestArgument(False, DataLocation(1))
    request = Request(arguments[:1], arguments[1:], (Memory(values.view(np.uint8)), ReturnedPool()))
    bound = BoundRequest(ValidRequest.bind(request, [operand], [operand]), [operand], private=private, check=check)
    value = bound.inputs[0]
    assert isinstance(value, np.ndarray)
    np.testing.assert_array_equal(value, values.reshape(4, 9))
    is_copied = private and writable
    assert np.may_share_memory(value, values) != is_copied
    assert check.call_count == (4 if is_copied else 0)
