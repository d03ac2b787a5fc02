"""Enumerations: the same names and numbers as in the contract."""

from enum import IntEnum

import pytest

from nnhal import enums
from nnhal.v1 import device_pb2, enums_pb2, error_pb2


@pytest.mark.parametrize(
    "name",
    [
        "DeviceType",
        "ErrorStatus",
        "ExecutionPreference",
        "FusedActivationFunc",
        "OperandLifeTime",
        "OperandType",
        "OperationType",
        "Priority",
    ],
)
def test_names_and_numbers(name: str) -> None:
    enum: type[IntEnum] = getattr(enums, name)
    values = getattr(enums_pb2, name).DESCRIPTOR.values
    prefix = "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(name)).upper() + "_"
    contract = {value.name.removeprefix(prefix): value.number for value in values}
    contract.pop("UNSPECIFIED", None)
    assert {member.name: member.value for member in enum} == contract


def test_error_kinds() -> None:
    contract = {v.name.removeprefix("ERROR_KIND_"): v.number for v in error_pb2.ErrorKind.DESCRIPTOR.values}
    assert {member.name: member.value for member in enums.ErrorKind} == contract


def test_backend_states() -> None:
    contract = {v.name.removeprefix("BACKEND_STATE_"): v.number for v in device_pb2.BackendState.DESCRIPTOR.values}
    assert {member.name: member.value for member in enums.BackendState} == contract


def test_cache_states() -> None:
    contract = {v.name.removeprefix("CACHE_STATE_"): v.number for v in device_pb2.CacheState.DESCRIPTOR.values}
    assert {member.name: member.value for member in enums.CacheState} == contract
