"""Arguments for tests of recurrent layers: float32, float16 and stored values, for CpuRef and for LiteRT."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from nnhal.types import DTYPES, Operand
from nnhal.types import OperandType as T
from tests.driver.litert_kernels import Input, State
from tests.driver.one_operation import Value, tensor

sizes = st.integers(1, 5)
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def float_value(values: object) -> Value:
    array = np.asarray(values, np.float32)
    return tensor(T.TENSOR_FLOAT32, array.shape), array


def random_floats(rng: np.random.Generator, *shape: int) -> Value:
    return float_value(rng.uniform(-1, 1, shape))


def omitted(rank: int) -> Value:
    return tensor(T.TENSOR_FLOAT32, (0,) * rank), None


def floats(*shapes: Sequence[int]) -> list[Operand]:
    return [tensor(T.TENSOR_FLOAT32, shape) for shape in shapes]


def as_half(values: Sequence[Value]) -> list[Value]:
    """Convert float32 arguments to float16."""
    types = {T.TENSOR_FLOAT32: T.TENSOR_FLOAT16, T.FLOAT32: T.FLOAT16}
    return [(replace(o, type=types.get(T(o.type), o.type)), value) for o, value in values]


def for_litert(values: Sequence[Value], states: Sequence[int]) -> list[Input]:
    """Return arguments for LiteRT. The arguments at positions `states` are variable tensors."""
    out: list[Input] = []
    for i, (operand, value) in enumerate(values):
        array = np.asarray(value, np.float32)
        out.append(None if value is None else (operand, State(array) if i in states else array))
    return out


def random_stored(rng: np.random.Generator, type_: T, shape: Sequence[int], scale: float, zero_point: int = 0) -> Value:
    """Return a tensor of random stored values. Biases are small enough to keep the gates in range."""
    low, high = {
        T.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 128),
        T.TENSOR_QUANT8_SYMM: (-127, 128),
        T.TENSOR_QUANT16_SYMM: (-8000, 8000),
        T.TENSOR_INT32: (-3000, 3000),
        T.TENSOR_QUANT8_ASYMM: (0, 256),
    }[type_]
    return tensor(type_, shape, scale, zero_point), rng.integers(low, high, shape)


def quantized_input(value: Value, is_state: bool = False) -> Input:
    operand, stored_ = value
    if stored_ is None:
        return None
    array = np.asarray(stored_, DTYPES[T(operand.type)])
    return (operand, State(array) if is_state else array)
