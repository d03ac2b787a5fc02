"""Canonical types against the contract, and what importing them loads."""

import subprocess
import sys
from enum import IntEnum

import numpy as np
import pytest

from nnhal import enums, types
from nnhal.errors import HalError
from nnhal.types import OperandType as T
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
def test_enums_have_the_contracts_names_and_numbers(name: str) -> None:
    ours: type[IntEnum] = getattr(enums, name)
    values = getattr(enums_pb2, name).DESCRIPTOR.values
    prefix = "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(name)).upper() + "_"
    contract = {value.name.removeprefix(prefix): value.number for value in values}
    contract.pop("UNSPECIFIED", None)
    assert {member.name: member.value for member in ours} == contract


def test_error_kinds_are_the_contracts() -> None:
    contract = {v.name.removeprefix("ERROR_KIND_"): v.number for v in error_pb2.ErrorKind.DESCRIPTOR.values}
    assert {member.name: member.value for member in enums.ErrorKind} == contract


def test_cache_states_are_the_contracts() -> None:
    contract = {v.name.removeprefix("CACHE_STATE_"): v.number for v in device_pb2.CacheState.DESCRIPTOR.values}
    assert {member.name: member.value for member in enums.CacheState} == contract


@pytest.mark.parametrize("module", ["nnhal", "nnhal.types", "nnhal.operations", "nnhal.errors"])
def test_importing_loads_no_grpc(module: str) -> None:
    unwanted = ("grpc", "google.protobuf", "service", "driver")
    code = f"import sys, {module}; print([m for m in {unwanted} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("type_", "dimensions", "size"),
    [
        (T.INT32, (), 4),
        (T.BOOL, (), 1),
        (T.TENSOR_FLOAT16, (2, 3), 12),
        (T.TENSOR_FLOAT32, (2, 0), 0),
        (T.TENSOR_FLOAT32, (), 0),
        (T.SUBGRAPH, (), 0),
    ],
)
def test_byte_size(type_: T, dimensions: tuple[int, ...], size: int) -> None:
    assert types.byte_size(type_, dimensions) == size


def test_fully_specified() -> None:
    assert types.is_fully_specified(T.INT32, ())
    assert types.is_fully_specified(T.TENSOR_INT32, (1, 2))
    assert not types.is_fully_specified(T.TENSOR_INT32, ())
    assert not types.is_fully_specified(T.TENSOR_INT32, (1, 0))


def test_names_of_unknown_types_are_their_numbers() -> None:
    assert types.type_name(3) == "TENSOR_FLOAT32"
    assert types.type_name(99) == "operand type 99"
    assert types.operation_name(3) == "CONV_2D"
    assert types.operation_name(-1) == "operation type -1"


def test_memory_is_a_window_and_no_copy() -> None:
    buffer = np.arange(10, dtype=np.uint8)
    pool = types.Memory(buffer, 2, 3)
    assert pool.size == 3
    pool.view[0] = 99
    assert buffer[2] == 99
    assert types.Memory(buffer, 4).size == 6


def test_memory_over_arrays_keeps_their_bytes() -> None:
    array = np.array([[1.5, -2]], np.float32)
    assert types.Memory.of(array).view.tobytes() == array.tobytes()
    assert types.Memory.of(np.float32(1.5)).view.size == 4  # type: ignore[arg-type]
    assert types.Memory.of(np.empty((0, 3), np.float32)).size == 0


def test_reasons_are_cut_to_2_kib() -> None:
    error = HalError(enums.ErrorStatus.GENERAL_FAILURE, "é" * 3000)
    assert len(error.reason.encode()) <= 2048
    assert error.reason.endswith(" ...")
    assert HalError(enums.ErrorStatus.GENERAL_FAILURE, "é" * 1024).reason == "é" * 1024
