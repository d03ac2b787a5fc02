"""QUANTIZE, DEQUANTIZE and CAST on CpuRef: cases computed by hand, and comparison with LiteRT."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, Operand, SymmPerChannelQuantParams
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.litert_kernels import litert, schema
from tests.driver.one_operation import Value, run, run_kernel, sample, tensor

pytestmark = pytest.mark.filterwarnings("error")

F32, F16, I32, BOOL = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_INT32, T.TENSOR_BOOL8
U8, I8, S8 = T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_QUANT8_SYMM
CHANNELS = T.TENSOR_QUANT8_SYMM_PER_CHANNEL
NAN, INF = float("nan"), float("inf")


def of(type_: T, values: object, scale: float = 0, zero_point: int = 0) -> Value:
    return tensor(type_, np.shape(np.asarray(values)), scale, zero_point), values


@pytest.mark.parametrize("source", [F32, F16])
@pytest.mark.parametrize(("type_", "shift"), [(U8, 0), (I8, -128)])
def test_quantize_rounds_away_from_zero_and_saturates(source: T, type_: T, shift: int) -> None:
    values = [0, 0.25, -0.25, 0.24, 1, 1000, -1000, INF, -INF, NAN]
    out = run(Op.QUANTIZE, [of(source, values)], [tensor(type_, (), 0.5, 10 + shift)])[0]
    assert out.tolist() == (np.array([10, 11, 9, 10, 12, 255, 0, 255, 0, 255]) + shift).tolist()


def test_quantize_just_below_a_half_gives_zero() -> None:
    below = float(np.nextafter(np.float32(0.5), np.float32(0)))
    assert run(Op.QUANTIZE, [of(F32, [below, -below, 0.5])], [tensor(U8, (), 1, 3)])[0].tolist() == [3, 3, 4]


def test_dequantize() -> None:
    assert run(Op.DEQUANTIZE, [of(U8, [0, 3, 255], 0.5, 3)], [tensor(F32)])[0].tolist() == [-1.5, 0, 126]
    assert run(Op.DEQUANTIZE, [of(I8, [-128, 127], 0.25, -1)], [tensor(F16)])[0].tolist() == [-31.75, 32]
    assert run(Op.DEQUANTIZE, [of(S8, [-128, 127], 2)], [tensor(F32)])[0].tolist() == [-256, 254]
    assert run(Op.DEQUANTIZE, [of(S8, [127], 1000)], [tensor(F16)])[0].tolist() == [INF]


def test_dequantize_per_channel() -> None:
    operand = replace(tensor(CHANNELS, (1, 2, 3)), extra_params=SymmPerChannelQuantParams((0.5, 2.0), 1))
    out = run(Op.DEQUANTIZE, [(operand, [[[1, 2, 3], [1, -2, -128]]])], [tensor(F32)])[0]
    assert out.tolist() == [[[0.5, 1, 1.5], [2, -4, -256]]]


CASTS: list[tuple[T, list[float], T, list[float]]] = [
    (F32, [-1, -0.9, 0.9, 255.9, 256, 1e30, INF, -INF, NAN], U8, [0, 0, 0, 255, 255, 255, 255, 0, 0]),
    (I32, [-1, 0, 255, 256, 2**31 - 1], U8, [0, 0, 255, 255, 255]),
    (F16, [-1.5, 7.9, 65504], U8, [0, 7, 255]),
    (F32, [-1.9, 1.9, 3e9, -3e9, INF, NAN], I32, [-1, 1, 2**31 - 1, -(2**31), 2**31 - 1, 0]),
    (U8, [0, 255], I32, [0, 255]),
    (U8, [0, 255], F32, [0, 255]),
    (U8, [0, 255], F16, [0, 255]),
    (I32, [2**24 + 1, -(2**31), 2**31 - 1], F32, [2**24, -(2.0**31), 2.0**31]),  # ties to even
    (I32, [2049, 2051, 70000], F16, [2048, 2052, INF]),
    (F32, [2049, 1e30, -1e30, NAN], F16, [2048, INF, -INF, NAN]),
    (F16, [1.5, INF, NAN], F32, [1.5, INF, NAN]),
    (F32, [1.5, NAN, -0.0], F32, [1.5, NAN, -0.0]),
    (BOOL, [True, False], BOOL, [True, False]),
    (I8, [-128, 127], I8, [-128, 127]),
    (S8, [-128, 127], S8, [-128, 127]),
    (T.TENSOR_QUANT16_ASYMM, [0, 65535], T.TENSOR_QUANT16_ASYMM, [0, 65535]),
    (T.TENSOR_QUANT16_SYMM, [-32768, 32767], T.TENSOR_QUANT16_SYMM, [-32768, 32767]),
]
QUANTIZED = (U8, I8, S8, T.TENSOR_QUANT16_ASYMM, T.TENSOR_QUANT16_SYMM)


@pytest.mark.parametrize(("source", "values", "target", "expected"), CASTS)
def test_cast_ignores_quantization(source: T, values: list[float], target: T, expected: list[float]) -> None:
    zero_point = 9 if U8 in (source, target) else 0
    input_ = of(source, values, *((0.5, zero_point if source == U8 else 0) if source in QUANTIZED else ()))
    output = tensor(target, (), *((2, 3 if target == U8 else 0) if target in QUANTIZED else ()))
    np.testing.assert_array_equal(run(Op.CAST, [input_], [output])[0], expected)


def assert_fails(type_: Op, input_: Value, output: Operand, status: ErrorStatus, message: str) -> None:
    with pytest.raises(HalError, match=message) as error:
        run(type_, [input_], [output])
    assert error.value.status == status


def test_broken_constraints() -> None:
    high = tensor(U8, (), 1), np.zeros((1, 1, 1, 1, 2))
    assert_fails(
        Op.DEQUANTIZE, high, tensor(F32), ErrorStatus.GENERAL_FAILURE, "input has rank 5; it must be at most 4"
    )
    assert run(Op.QUANTIZE, [of(F32, np.zeros((1, 1, 1, 1, 2)))], [tensor(U8, (), 1)])[0].shape == (1, 1, 1, 1, 2)
    invalid = ErrorStatus.INVALID_ARGUMENT
    assert_fails(Op.CAST, of(F32, [1, 2]), tensor(I32, (2, 1)), invalid, r"input has dimensions \[2\], output \[2, 1\]")
    assert_fails(Op.CAST, (tensor(F32, (0,)), [1, 2]), tensor(I32, (2,)), invalid, r"input has dimensions \[0\]")
    assert run(Op.CAST, [of(F32, [1, 2])], [tensor(I32, (0,))])[0].tolist() == [1, 2]
    assert_fails(Op.CAST, of(U8, [1], 1), tensor(I8, (), 1), invalid, "TENSOR_QUANT8_ASYMM_SIGNED")
    assert_fails(Op.CAST, of(F32, [1]), tensor(BOOL), invalid, "TENSOR_BOOL8")


def test_empty_tensors() -> None:
    empty = tensor(F32), np.zeros((0, 2))
    assert run_kernel(Op.QUANTIZE, [empty], [tensor(U8, (), 1)])[0].shape == (0, 2)
    assert run_kernel(Op.DEQUANTIZE, [(tensor(U8, (), 1), np.zeros((0, 2)))], [tensor(F32)])[0].shape == (0, 2)
    with pytest.raises(HalError, match="input has no elements") as error:
        run_kernel(Op.CAST, [empty], [tensor(I32)])
    assert error.value.status == ErrorStatus.INVALID_ARGUMENT


SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@settings(max_examples=25, deadline=None)
@given(array_shapes(max_dims=4, max_side=5), SEEDS, st.sampled_from([U8, I8]))
def test_conversions_agree_with_litert(shape: tuple[int, ...], rng: np.random.Generator, type_: T) -> None:
    real, stored = tensor(F32, shape), tensor(type_, shape, rng.uniform(0.005, 0.1), int(rng.integers(100)))
    values, integers = sample(rng, real), sample(rng, stored)
    ours, theirs = (
        run(Op.QUANTIZE, [(real, values)], [stored])[0],
        litert("QUANTIZE", None, [(real, values)], [stored])[0],
    )
    np.testing.assert_array_equal(ours, theirs)
    theirs = litert("DEQUANTIZE", None, [(stored, integers)], [real])[0]
    np.testing.assert_allclose(run(Op.DEQUANTIZE, [(stored, integers)], [real])[0], theirs, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(array_shapes(max_dims=4, max_side=5), SEEDS, st.sampled_from([(F32, I32), (I32, F32), (F32, U8), (U8, F32)]))
def test_cast_agrees_with_litert(shape: tuple[int, ...], rng: np.random.Generator, types: tuple[T, T]) -> None:
    input_, output = (tensor(type_, shape, 1 if type_ == U8 else 0) for type_ in types)
    values = sample(rng, input_)
    if types[0] == F32:
        values = np.abs(values) * np.float32(60)  # in the range of uint8: LiteRT does not clamp
    theirs = litert("CAST", schema().CastOptionsT(), [(input_, values)], [output])[0]
    np.testing.assert_array_equal(run(Op.CAST, [(input_, values)], [output])[0], theirs)
