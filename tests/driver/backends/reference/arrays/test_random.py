"""RANDOM_MULTINOMIAL and LSH_PROJECTION on CpuRef: known answers, distributions, and against LiteRT."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError
from nnhal.types import AnyArray
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.reference.arrays.random import philox, uniform
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, int32, run, tensor
from tests.driver.recurrent_arguments import as_half, float_value, generators, omitted

# ---- RANDOM_MULTINOMIAL ---------------------------------------------------------------------------------


def seeds(*values: int) -> Value:
    return tensor(T.TENSOR_INT32, (len(values),)), values


def draw(logits: object, samples: int, *seeds_: int) -> AnyArray:
    value = float_value(logits)
    output = tensor(T.TENSOR_INT32, (value[0].dimensions[0], samples))
    return run(Op.RANDOM_MULTINOMIAL, [value, int32(samples), seeds(*seeds_)], [output])[0]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        (0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**128 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (0x0370734413198A2E85A308D3243F6A88, 0x299F31D0A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_known_answers(counter: int, key: int, words: str) -> None:
    actual = philox(key, counter >> 64, np.array([counter % 2**64], np.uint64))
    assert [int(word[0]) for word in actual] == [int(word, 16) for word in words.split()]


def test_uniform_number_takes_52_bits_of_two_words() -> None:
    first, second, _ = uniform(0, 0, 0, 3)
    assert first == 0x7E8D5E169C58D / 2**52
    assert second == 0x7AC4C9B00DBD8 / 2**52


def test_draw_is_the_class_that_the_number_falls_into() -> None:
    # classes with odds 1 : 2 : 5 end at 1/8, 3/8, 8/8
    numbers = uniform(3, 4, 0, 10).reshape(2, 5)
    out = draw(np.log([[1, 2, 5], [1, 2, 5]]), 5, 3, 4)
    np.testing.assert_array_equal(out, np.where(numbers < 1 / 8, 0, np.where(numbers < 3 / 8, 1, 2)))
    assert len(np.unique(out)) > 1


@pytest.mark.parametrize("type_", [T.TENSOR_FLOAT32, T.TENSOR_FLOAT16])
def test_distribution_is_within_the_tolerance_of_the_vectors(type_: T) -> None:
    # the check of the vectors, for one batch: |count / samples - exp(logit) / sum of exp| <= multinomial_tolerance
    samples, tolerance = 20_000, 0.02
    logits = np.random.default_rng(0).normal(0, 2, (1, 16))
    arguments = [float_value(logits), int32(samples), seeds(37, 42)]
    if type_ == T.TENSOR_FLOAT16:
        arguments = as_half(arguments)
    out = run(Op.RANDOM_MULTINOMIAL, arguments, [tensor(T.TENSOR_INT32, (1, samples))])[0]
    shares = np.bincount(out[0], minlength=16) / samples
    assert np.abs(shares - np.exp(logits[0]) / np.exp(logits[0]).sum()).max() <= tolerance


def test_logits_that_are_not_finite_are_never_drawn() -> None:
    out = draw([[-np.inf, 0, np.nan, 1, np.inf]], 200, 1, 2)
    assert set(out.ravel()) == {1, 3}
    np.testing.assert_array_equal(draw([[np.nan, np.inf]], 3, 1, 2), [[2, 2, 2]])


def test_equal_seeds_give_equal_draws_and_zero_seeds_random_ones() -> None:
    logits = np.zeros((2, 100))
    np.testing.assert_array_equal(draw(logits, 20, 5, -6), draw(logits, 20, 5, -6))
    assert (draw(logits, 20, 5, -6) != draw(logits, 20, 5, 6)).any()
    assert (draw(logits, 20, 0, 0) != draw(logits, 20, 0, 0)).any()
    rows = draw(logits, 20, 5, -6)
    assert (rows[0] != rows[1]).any()


@pytest.mark.parametrize(
    ("logits", "samples", "seeds_", "message"),
    [
        (float_value([1]), 1, seeds(1, 2), "logits has rank 1; it must be 2"),
        (float_value([[1]]), 0, seeds(1, 2), "num_samples is 0; it must be > 0"),
        (float_value([[1]]), 1, seeds(1, 2, 3), r"seeds has shape \[3\]; it must be \[2\]"),
    ],
)
def test_broken_constraint_fails_the_draw(logits: Value, samples: int, seeds_: Value, message: str) -> None:
    with pytest.raises(HalError, match=message):
        run(Op.RANDOM_MULTINOMIAL, [logits, int32(samples), seeds_], [tensor(T.TENSOR_INT32)])


# ---- LSH_PROJECTION -------------------------------------------------------------------------------------

SPARSE_DEPRECATED, DENSE, SPARSE = 1, 2, 3
HASH = float_value([[0.123, 0.456], [-0.321, -0.654], [1.234, 5.678], [-4.321, -8.765]])
ROWS: Value = (tensor(T.TENSOR_INT32, (3, 2)), [[12345, 54321], [67890, 9876], [-12345678, -87654321]])
NO_WEIGHT = omitted(1)


def project(hash_: Value, rows: Value, weight: Value, kind: int) -> AnyArray:
    return run(Op.LSH_PROJECTION, [hash_, rows, weight, int32(kind)], [tensor(T.TENSOR_INT32)])[0]


def test_known_signatures() -> None:
    np.testing.assert_array_equal(project(HASH, ROWS, NO_WEIGHT, SPARSE_DEPRECATED), [1, 2, 2, 0])
    np.testing.assert_array_equal(project(HASH, ROWS, NO_WEIGHT, SPARSE), [1, 6, 10, 12])
    ones = float_value([1, 1, 1])
    np.testing.assert_array_equal(project(HASH, ROWS, ones, DENSE), [0, 1, 1, 0, 1, 0, 0, 0])
    # negative weights invert all bits
    np.testing.assert_array_equal(project(HASH, ROWS, float_value([-1, -1, -1]), DENSE), [1, 0, 0, 1, 0, 1, 1, 1])


def test_rows_are_hashed_as_bytes() -> None:
    raw = np.asarray(ROWS[1], np.int32).view(np.uint8)
    quantized: Value = (tensor(T.TENSOR_QUANT8_ASYMM, raw.shape, 0.5, 7), raw)
    np.testing.assert_array_equal(project(HASH, quantized, NO_WEIGHT, SPARSE), [1, 6, 10, 12])


def test_float16_seeds_are_widened() -> None:
    seeds_ = float_value(np.asarray(HASH[1], np.float16))
    half = as_half([seeds_, NO_WEIGHT])
    np.testing.assert_array_equal(project(half[0], ROWS, half[1], SPARSE), project(seeds_, ROWS, NO_WEIGHT, SPARSE))


def test_signatures_of_32_bits_wrap() -> None:
    bits = float_value(np.arange(32).reshape(1, 32))
    dense = project(bits, ROWS, float_value([1, 1, 1]), DENSE)
    signature = project(bits, ROWS, NO_WEIGHT, SPARSE_DEPRECATED)
    assert f"{int(signature[0]) % 2**32:032b}" == "".join(str(bit) for bit in dense)


@pytest.mark.parametrize(
    ("hash_", "rows", "weight", "kind", "message"),
    [
        (float_value([1]), ROWS, NO_WEIGHT, SPARSE, "hash has rank 1; it must be 2"),
        (float_value(np.ones((1, 33))), ROWS, NO_WEIGHT, SPARSE, "hash has 33 bits; it must have at most 32"),
        (HASH, ROWS, NO_WEIGHT, 4, r"type is 4; it must be in 1\.\.3"),
        (HASH, ROWS, NO_WEIGHT, DENSE, "weight must be given with type 2"),
        (HASH, ROWS, float_value([1, 1, 1]), SPARSE, "weight must be given with type 2"),
        (HASH, ROWS, float_value([1, 1]), DENSE, r"weight has shape \[2\]; it must be \[3\]"),
    ],
)
def test_broken_constraint_fails_the_projection(
    hash_: Value, rows: Value, weight: Value, kind: int, message: str
) -> None:
    with pytest.raises(HalError, match=message):
        project(hash_, rows, weight, kind)


def project_on_litert(values: Sequence[Value], kind: int) -> AnyArray:
    hash_, rows, weight = values
    options = schema().LSHProjectionOptionsT()
    options.type = {SPARSE: 1, DENSE: 2}[kind]
    inputs = [(hash_[0], np.asarray(hash_[1])), (rows[0], np.asarray(rows[1]))]
    if weight[1] is not None:
        inputs.append((weight[0], np.asarray(weight[1])))
    return litert("LSH_PROJECTION", options, inputs, [tensor(T.TENSOR_INT32, (1,))])[0]


# row lengths in bytes, after 4 bytes of seed: each branch of the fingerprint, and its limits
@settings(max_examples=40, deadline=None)
@given(generators, st.sampled_from([1, 3, 4, 5, 12, 13, 28, 29, 60, 61, 124, 125, 188, 189, 1000]), st.booleans())
def test_projection_agrees_with_litert(rng: np.random.Generator, length: int, dense: bool) -> None:
    hash_ = float_value(rng.normal(size=(4, 6)))
    rows: Value = (tensor(T.TENSOR_QUANT8_ASYMM, (5, length), 1), rng.integers(0, 256, (5, length), np.uint8))
    weight = float_value(rng.normal(size=5)) if dense else NO_WEIGHT
    kind = DENSE if dense else SPARSE
    np.testing.assert_array_equal(project(hash_, rows, weight, kind), project_on_litert([hash_, rows, weight], kind))
