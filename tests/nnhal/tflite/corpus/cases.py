"""Tensors with sample values, and the registry of the corpus's models."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from nnhal.types import AnyArray
from tests.nnhal.tflite.build import Op, Tensor, build

Generator = Callable[[str], Iterator[Op]]

GENERATORS: dict[str, Generator] = {}
"""The generator of each operator, by its name in the schema."""

_DTYPES = {"FLOAT32": "f4", "FLOAT16": "f2", "BOOL": "?"}
_SCALES = {"INT8": (0.05, -7), "UINT8": (0.05, 121), "INT16": (0.001, 0)}
"""Default scale and zero point."""
_PLAIN_INTEGERS = (-100, 100)
QUANTIZED = ("INT8", "UINT8")


@dataclass
class SampledTensor(Tensor):
    """A tensor with the range or the list of its sample values, which are stored values if it is quantized."""

    low: float | None = None
    high: float | None = None
    values: npt.ArrayLike | None = None


def tensor(
    type_: str,
    *shape: int,
    scale: float | tuple[float, ...] | None = None,
    zero_point: int | None = None,
    low: float | None = None,
    high: float | None = None,
    values: npt.ArrayLike | None = None,
    dimension: int = 0,
    **more: Any,
) -> SampledTensor:
    """Return a tensor. 8-bit and 16-bit integers are quantized unless `scale` is 0.

    Args:
        type_: the name of the type in the schema.
        shape: the shape; any shape will do for outputs, which LiteRT determines.
        scale: the scale, or one for each index of `dimension`.
        zero_point: the zero point, the same for all scales.
        low: the lowest sample value.
        high: the highest sample value.
        values: the sample values themselves.
        dimension: the dimension of several scales.
        more: further fields of the schema's TensorT.
    """
    default_scale, default_zero_point = _SCALES.get(type_, (0.0, 0))
    if scale is None:
        scale = default_scale
    if zero_point is None:
        zero_point = default_zero_point if isinstance(scale, float) else 0
    scales = scale if isinstance(scale, tuple) else (float(np.float32(scale)),) if scale else ()
    zero_points = (zero_point,) * len(scales)
    return SampledTensor(
        shape, type_, None, scales, zero_points, dimension, more=more, low=low, high=high, values=values
    )


def constant(tensor_: SampledTensor) -> SampledTensor:
    """Return a constant tensor with sample values."""
    return replace(tensor_, data=sample(tensor_))


def const(type_: str, values: npt.ArrayLike, **more: Any) -> SampledTensor:
    """Return a constant tensor with these values."""
    return constant(tensor(type_, *np.shape(values), values=values, **more))


def with_constants(op: Op, *positions: int) -> Op:
    """Return an operator, some of whose inputs are constants."""
    inputs = [
        constant(each) if i in positions and isinstance(each, SampledTensor) else each
        for i, each in enumerate(op.inputs)
    ]
    return replace(op, inputs=inputs)


def sample(tensor_: Tensor, salt: int = 0) -> AnyArray:
    """Return the sample values of a tensor: always the same for the same type, shape and range."""
    dtype = np.dtype(_DTYPES.get(tensor_.type, tensor_.type.lower()))
    low, high, values = (getattr(tensor_, name, None) for name in ("low", "high", "values"))
    if values is not None:
        return np.asarray(values, dtype).reshape(tensor_.shape)
    random = np.random.default_rng(crc32(f"{tensor_.type} {tensor_.shape} {low} {high} {salt}".encode()))
    if dtype.kind == "c":
        return np.asarray(random.standard_normal(tensor_.shape) + 1j * random.standard_normal(tensor_.shape), dtype)
    if dtype.kind == "f":
        if low is None or high is None:
            return np.asarray(2 * random.standard_normal(tensor_.shape), dtype)
        return np.asarray(random.uniform(low, high, tensor_.shape), dtype)
    if dtype.kind == "b":
        default = (0, 1)
    elif dtype.itemsize == 1:
        default = (np.iinfo(dtype.str).min, np.iinfo(dtype.str).max)
    else:
        default = (0 if dtype.kind == "u" else _PLAIN_INTEGERS[0], _PLAIN_INTEGERS[1])
        if tensor_.scale:
            default = (-32768, 32767)
    bounds = (default[0] if low is None else int(low), default[1] if high is None else int(high))
    return np.asarray(random.integers(*bounds, tensor_.shape, endpoint=True), dtype)


def models(*operators: str) -> Callable[[Generator], Generator]:
    """Register a generator of models for operators."""

    def register(function: Generator) -> Generator:
        for operator in operators:
            assert operator not in GENERATORS, operator
            GENERATORS[operator] = function
        return function

    return register


@dataclass(frozen=True)
class Case:
    """A model of the corpus. Its name lists types, shapes and options: `ADD FLOAT32:2x3 FLOAT32:3c -> FLOAT32`."""

    name: str
    op: Op

    @property
    def operator(self) -> str:
        """The name of the operator."""
        return self.op.name

    def inputs(self) -> list[Tensor]:
        """Return the tensors that are inputs of the model."""
        tensors: list[Tensor] = []
        for each in self.op.inputs:
            if each is not None and each.data is None and not each.more and not any(each is t for t in tensors):
                tensors.append(each)
        return tensors

    def arrays(self) -> list[AnyArray]:
        """Return the values of the inputs."""
        return [sample(each, i) for i, each in enumerate(self.inputs())]

    def model(self) -> bytes:
        """Return the bytes of the file."""
        return build(self.op)


@cache
def cases(operator: str) -> tuple[Case, ...]:
    """Return the models of an operator, whose names are unique."""
    found: list[Case] = []
    counts: Counter[str] = Counter()
    for op in GENERATORS[operator](operator):
        name = _describe(op)
        counts[name] += 1
        found.append(Case(name if counts[name] == 1 else f"{name} #{counts[name]}", op))
    return tuple(found)


def all_cases() -> dict[str, Case]:
    """Return all models by name."""
    return {case.name: case for operator in sorted(GENERATORS) for case in cases(operator)}


def _describe(op: Op) -> str:
    words = [op.name, *_grouped(map(_word, op.inputs)), "->", *_grouped(map(_type_word, op.outputs))]
    if op.options is not None:
        initial = vars(type(op.options)())
        words += [
            f"{name}={value}".replace(" ", "")
            for name, value in vars(op.options).items()
            if not np.array_equal(value, initial[name])
        ]
    return " ".join(words)


def _grouped(words: Iterable[str]) -> Iterator[str]:
    """Yield words. Several equal ones become `2*word`."""
    for word, group in groupby(words):
        count = len(list(group))
        yield word if count == 1 else f"{count}*{word}"


def _word(tensor_: Tensor | None) -> str:
    if tensor_ is None:
        return "none"
    word = f"{_type_word(tensor_)}:{'x'.join(map(str, tensor_.shape))}"
    if tensor_.data is None:
        return word
    values = np.asarray(tensor_.data).reshape(-1)
    shown = tensor_.type in ("INT32", "INT64") and len(values) < 7
    return word + ("=" + ",".join(map(str, values.tolist())) if shown else "c")


def _type_word(tensor_: Tensor) -> str:
    if not tensor_.scale:
        return tensor_.type
    if len(tensor_.scale) > 1:
        return f"{tensor_.type}@{len(tensor_.scale)}scales"
    scale, zero_point = tensor_.scale[0], tensor_.zero_point[0]
    default = _SCALES.get(tensor_.type, (0.0, 0))
    if (scale, zero_point) == (float(np.float32(default[0])), default[1]):
        return tensor_.type + "q"
    return f"{tensor_.type}q{scale:.6g}@{zero_point}"
