"""Options of parts, reasons of devices, and errors of preparations."""

import pytest

from nnhal.client.fallback.preparation import (
    PreparationArguments,
    find_refusals,
    may_be_unsupported,
    no_local_service,
    not_supported_anywhere,
)
from nnhal.errors import DeadObjectError, HalError, SessionLostError, limit_exceeded
from nnhal.types import ErrorStatus, ExecutionPreference, Priority, Refusal
from nnhal.v1 import device_pb2, types_pb2

NO = {1: (Refusal("A", "too wide"),), 4: (Refusal("A", "too wide"),)}


def test_names_are_converted() -> None:
    options = PreparationArguments.of("low_power", "high", True, None)
    assert options == PreparationArguments(ExecutionPreference.LOW_POWER, Priority.HIGH, True, None)


def test_each_part_has_its_own_token() -> None:
    options = PreparationArguments.of(0, 0, False, bytes(32))
    parts = [((0, 1), False), ((0, 1), True), ((0,), False), ((1,), False)]
    tokens = {options.for_operations(operations, is_fallback=local).token for operations, local in parts}
    assert len(tokens | {options.token}) == len(parts) + 1
    assert all(token is not None and len(token) == 32 for token in tokens)
    again = PreparationArguments.of(0, 0, False, bytes(32)).for_operations((0, 1), is_fallback=True)
    assert again.token in tokens
    derived = PreparationArguments.of(0, 0, True, None)
    assert derived.for_operations((0,), is_fallback=True) is derived


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HalError(ErrorStatus.GENERAL_FAILURE, ""), True),
        (HalError(ErrorStatus.INVALID_ARGUMENT, ""), True),
        (HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, ""), False),
        (HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, ""), False),
        (limit_exceeded("models", "", ErrorStatus.GENERAL_FAILURE), False),
        (SessionLostError(ErrorStatus.GENERAL_FAILURE, ""), False),
        (DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, ""), False),
    ],
)
def test_only_some_errors_may_be_unsupported_operations(error: HalError, expected: bool) -> None:
    assert may_be_unsupported(error) is expected


def test_reasons_are_those_of_the_device() -> None:
    placement = types_pb2.Placement(
        operations=[
            types_pb2.OperationPlacement(
                subgraph=0, operation=1, refusals=[types_pb2.Refusal(backend="A", reason="no")]
            ),
            types_pb2.OperationPlacement(
                subgraph=1, operation=0, refusals=[types_pb2.Refusal(backend="B", reason="x")]
            ),
        ]
    )
    response = device_pb2.GetSupportedOperationsResponse(supported=[False, False, True], placement=placement)
    assert find_refusals(response) == {0: (Refusal("device", "not supported"),), 1: (Refusal("A", "no"),)}


def test_errors_name_operations_reasons_and_remedy() -> None:
    cause = HalError(ErrorStatus.GENERAL_FAILURE, "this command needs more packages")
    assert no_local_service(NO, cause).reason == (
        "the device does not support operations 1, 4 (A: too wide); to run such operations on this machine, install "
        "the extra nnhal[server] (pip install 'nnhal[server]'): this command needs more packages"
    )
    anywhere = not_supported_anywhere({2: NO[1]}, HalError(ErrorStatus.INVALID_ARGUMENT, "no kernel", rule="V-1"))
    assert str(anywhere) == (
        "INVALID_ARGUMENT: V-1: the device does not support operation 2 (A: too wide); on this machine: no kernel"
    )
