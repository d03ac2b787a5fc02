"""Canonical types: memory windows, sizes, names, and modules that their import loads."""

import subprocess
import sys

import numpy as np
import pytest

from nnhal import types
from nnhal.types import OperandType as T


@pytest.mark.parametrize("module", ["nnhal", "nnhal.types", "nnhal.operations", "nnhal.errors"])
def test_import_does_not_load_grpc(module: str) -> None:
    forbidden = ("grpc", "google.protobuf", "nnhal_service", "nnhal_driver")
    code = f"import sys, {module}; print([m for m in {forbidden} if m in sys.modules])"
    process = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


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


def test_operations_of_extensions_have_the_name_of_the_extension() -> None:
    extensions = {1: "org.nnhal.litert", 0x7FFF: "com.vendor.x"}
    assert types.operation_name(0x10000, extensions) == "SUBMODEL of org.nnhal.litert"
    assert types.operation_name(0x10001, extensions) == "operation 1 of org.nnhal.litert"
    assert types.operation_name(0x7FFF0003, extensions) == "operation 3 of com.vendor.x"
    assert types.operation_name(0x20000, extensions) == "operation type 131072"
    assert types.operation_name(3, {0: "com.vendor.y"}) == "CONV_2D"
    assert types.operation_name(-1, {-1: "com.vendor.y"}) == "operation type -1"


def test_results_are_shown_with_names() -> None:
    assert repr(types.CacheOutcome(types.CacheState.HIT)) == "CacheOutcome(HIT)"
    assert repr(types.CacheOutcome(9, "why")) == "CacheOutcome(9, reason='why')"
    placement = types.OperationPlacement(0, 4, types.OperationType.CONV_2D, "CpuRef")
    assert repr(placement) == "OperationPlacement(CONV_2D, subgraph=0, operation=4, backend='CpuRef')"
    failed = types.BackendInfo("", "", types.BackendState.FAILED, "it crashed", "a.so")
    assert repr(failed) == "<nnhal.BackendInfo (no id): FAILED, a.so, it crashed>"
    hash(failed)


def test_memory_is_a_window_without_a_copy() -> None:
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
