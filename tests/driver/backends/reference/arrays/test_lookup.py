"""EMBEDDING_LOOKUP and HASHTABLE_LOOKUP on CpuRef: cases computed by hand, and comparison with LiteRT."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert
from tests.driver.one_operation import Value, float_tensor, int_tensor, run, run_kernel, sample, tensor

F32, U8, I8, I32 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_INT32
OUT, HITS = tensor(F32), tensor(U8, (), 1, 0)
ROWS = float_tensor([[1, 2], [3, 4], [5, 6]])


def test_embedding_lookup_takes_rows() -> None:
    (out,) = run(Op.EMBEDDING_LOOKUP, [int_tensor([2, 0, 2]), ROWS], [OUT])
    assert out.tolist() == [[5, 6], [1, 2], [5, 6]]


def test_hashtable_lookup_takes_rows_by_key() -> None:
    keys = int_tensor([-5, 10, 20])
    out, hits = run(Op.HASHTABLE_LOOKUP, [int_tensor([10, 11, -5, 21, -6, 20]), keys, ROWS], [OUT, HITS])
    assert out.tolist() == [[3, 4], [0, 0], [1, 2], [0, 0], [0, 0], [5, 6]]
    assert hits.tolist() == [1, 0, 1, 0, 0, 1]


def test_quantized_miss_is_a_stored_0() -> None:
    values = tensor(U8, (1, 2), 0.5, 9), [[7, 8]]
    outputs = [tensor(U8, (), 0.5, 9), HITS]
    out, _ = run(Op.HASHTABLE_LOOKUP, [int_tensor([1, 2]), int_tensor([2]), values], outputs)
    assert out.tolist() == [[0, 0], [7, 8]]


KEYS = int_tensor([1, 2, 3])
GENERAL, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT
WRONG: list[tuple[Op, list[Value], list[Operand], str]] = [
    (Op.EMBEDDING_LOOKUP, [int_tensor([0, 3]), ROWS], [OUT], r"lookups lie in 0\.\.3; they must be in 0\.\.2"),
    (Op.EMBEDDING_LOOKUP, [int_tensor([-1]), ROWS], [OUT], r"lookups lie in -1\.\.-1"),
    (Op.EMBEDDING_LOOKUP, [int_tensor([[0]]), ROWS], [OUT], "lookups has rank 2; it must be 1"),
    (Op.EMBEDDING_LOOKUP, [int_tensor([0]), float_tensor([1])], [OUT], "values has rank 1; it must be at least 2"),
    (
        Op.EMBEDDING_LOOKUP,
        [int_tensor([0]), (tensor(U8, (1, 1), 0.5, 1), [[1]])],
        [tensor(U8, (), 0.5, 2)],
        "output has scale 0.5, zero point 2; values has",
    ),
    (Op.HASHTABLE_LOOKUP, [int_tensor([[0]]), KEYS, ROWS], [OUT, HITS], "lookups has rank 2"),
    (Op.HASHTABLE_LOOKUP, [int_tensor([0]), int_tensor([[1, 2, 3]]), ROWS], [OUT, HITS], "keys has rank 2"),
    (Op.HASHTABLE_LOOKUP, [int_tensor([0]), int_tensor([1]), ROWS], [OUT, HITS], "1 keys for 3 rows of values"),
    (
        Op.HASHTABLE_LOOKUP,
        [int_tensor([0]), KEYS, ROWS],
        [OUT, tensor(U8, (), 0.5)],
        "hits has scale .* must have 1, 0",
    ),
]


@pytest.mark.parametrize(("type_", "inputs", "outputs", "message"), WRONG)
def test_broken_constraints_fail_the_run(type_: Op, inputs: list[Value], outputs: list[Operand], message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, inputs, outputs)
    assert error.value.status == GENERAL


def test_empty_inputs_fail_the_run() -> None:
    empty, table = (tensor(I32), np.zeros(0)), (tensor(F32), np.zeros((3, 0)))
    for type_, inputs, outputs in (
        (Op.EMBEDDING_LOOKUP, [empty, ROWS], [OUT]),
        (Op.EMBEDDING_LOOKUP, [int_tensor([0]), table], [OUT]),
        (Op.HASHTABLE_LOOKUP, [empty, KEYS, ROWS], [OUT, HITS]),
        (Op.HASHTABLE_LOOKUP, [int_tensor([0]), KEYS, table], [OUT, HITS]),
    ):
        with pytest.raises(HalError, match="has no elements") as error:
            run_kernel(type_, inputs, outputs)
        assert error.value.status == INVALID


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple),
    st.integers(0, 2**32 - 1).map(np.random.default_rng),
    st.sampled_from([F32, U8, I8]),
)
def test_agrees_with_litert(shape: tuple[int, ...], rng: np.random.Generator, type_: T) -> None:
    quantization = (0.0, 0) if type_ == F32 else (0.5, 3)
    values, out = tensor(type_, shape, *quantization), tensor(type_, (), *quantization)
    table = values, sample(rng, values)
    lookups = tensor(I32, (5,)), rng.integers(0, shape[0], 5, np.int32)
    ours = run(Op.EMBEDDING_LOOKUP, [lookups, table], [out])[0]
    np.testing.assert_array_equal(ours, litert("EMBEDDING_LOOKUP", None, [lookups, table], [out])[0])
    if type_ != F32:
        return
    keys = tensor(I32, (shape[0],)), np.sort(rng.choice(10, shape[0], replace=False)).astype(np.int32)
    lookups = tensor(I32, (5,)), rng.integers(0, 10, 5, np.int32)
    ours, hits = run(Op.HASHTABLE_LOOKUP, [lookups, keys, table], [out, HITS])
    theirs = litert("HASHTABLE_LOOKUP", None, [lookups, keys, table], [tensor(F32), tensor(U8)])
    np.testing.assert_array_equal(ours, theirs[0])
    np.testing.assert_array_equal(hits, theirs[1])
