"""Benchmark models of one operation each, for devices that do not run the typical model of a group."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.builder import GraphBuilder, ModelBuilder, OperandRef
from nnhal.types import DTYPES, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op

IMAGE = (1, 16, 16, 16)
ROWS = (64, 64)
NONE, SAME = 0, 1
"""No fused activation, and the padding scheme that keeps the size."""

_ZERO = {T.TENSOR_QUANT8_ASYMM: 0, T.TENSOR_QUANT8_ASYMM_SIGNED: -128}
"""Smallest values of the quantized types."""


@dataclass(frozen=True, slots=True)
class _Benchmark:
    """Use of one operation on a new input of a shape, which it takes one or more `times`, and further `numbers`.

    The output has the type and shape of the input where these are None. The zero point of a quantized output is
    `offset` above the smallest value.
    """

    shape: Sequence[int] = IMAGE
    times: int = 1
    numbers: Sequence[int | float | Sequence[int]] = ()
    output: T | None = None
    output_shape: Sequence[int] | None = None
    scale: float = 0.5
    offset: int = 128


def tensor(type_: T, shape: Sequence[int], scale: float = 0.5, offset: int = 128) -> Operand:
    """Return a tensor. The zero point of a quantized type is `offset` above its smallest value."""
    quantization = (scale, _ZERO[type_] + offset) if type_ in _ZERO else ()
    return Operand(type_, tuple(shape), *quantization)


def add_input(graph: GraphBuilder, operand: Operand) -> OperandRef:
    """Add an input of the type, shape and quantization of an operand."""
    return graph.input(operand.type, operand.dimensions, scale=operand.scale, zero_point=operand.zero_point)


def add_constant(graph: GraphBuilder, operand: Operand, numbers: object) -> OperandRef:
    """Add a constant of the type and quantization of an operand, with stored values."""
    values = np.asarray(numbers, DTYPES[operand.type])
    return graph.constant(values, operand.type, scale=operand.scale, zero_point=operand.zero_point)


def add_weights(graph: GraphBuilder, type_: T, shape: Sequence[int]) -> tuple[OperandRef, OperandRef]:
    """Add weights with values 0 to 6, in steps of 0.25 if they are quantized, and a bias of zeros."""
    weights = tensor(type_, shape, 0.25)
    numbers = np.arange(np.prod(shape)).reshape(shape) % 7 + weights.zero_point
    bias = Operand(T.TENSOR_INT32, scale=0.125) if type_ in _ZERO else Operand(type_)
    return add_constant(graph, weights, numbers), add_constant(graph, bias, np.zeros(shape[0]))


def operation_models(type_: T, *, relaxed: bool = False) -> Iterator[Model]:
    """Yield a model for each operation that is measured on tensors of a type, the most typical first."""
    for operation in OPERATIONS[type_]:
        model = ModelBuilder(relaxed=relaxed)
        model.output(apply_operation(model, type_, operation))
        yield model.build()


def input_of(type_: T, operation: Op) -> Operand:
    """Return the input of an operation that is measured."""
    return tensor(type_, _BENCHMARKS[operation].shape)


def apply_operation(graph: GraphBuilder, type_: T, operation: Op) -> OperandRef:
    """Apply an operation to a new input of a type, and return the output."""
    benchmark = _BENCHMARKS[operation]
    x = add_input(graph, input_of(type_, operation))
    output_shape = benchmark.output_shape or benchmark.shape
    output = tensor(benchmark.output or type_, output_shape, benchmark.scale, benchmark.offset)
    weights = add_weights(graph, type_, ROWS) if operation == Op.FULLY_CONNECTED else ()
    return graph.add(operation, *[x] * benchmark.times, *weights, *benchmark.numbers, output=output)


_BENCHMARKS: Mapping[Op, _Benchmark] = {
    Op.FULLY_CONNECTED: _Benchmark(ROWS, numbers=(NONE,), scale=64.0),
    **dict.fromkeys((Op.ADD, Op.MUL, Op.SUB), _Benchmark(times=2, numbers=(NONE,), scale=4.0)),
    **dict.fromkeys((Op.MAX_POOL_2D, Op.AVERAGE_POOL_2D), _Benchmark(numbers=(SAME, 1, 1, 3, 3, NONE))),
    Op.SOFTMAX: _Benchmark(ROWS, numbers=(1.0,), scale=1 / 256, offset=0),
    **dict.fromkeys((Op.RELU, Op.RELU6, Op.RELU1), _Benchmark()),
    # these fix the quantization of their output
    Op.LOGISTIC: _Benchmark(scale=1 / 256, offset=0),
    Op.TANH: _Benchmark(scale=1 / 128),
    **dict.fromkeys((Op.ABS, Op.NEG, Op.EXP, Op.SQRT), _Benchmark()),
    Op.RESHAPE: _Benchmark(numbers=(ROWS,), output_shape=ROWS),
    Op.TRANSPOSE: _Benchmark(ROWS, numbers=((1, 0),)),
    **dict.fromkeys((Op.EQUAL, Op.LESS), _Benchmark(ROWS, times=2, output=T.TENSOR_BOOL8)),
    Op.QUANTIZE: _Benchmark(ROWS, output=T.TENSOR_QUANT8_ASYMM),
    Op.DEQUANTIZE: _Benchmark(ROWS, output=T.TENSOR_FLOAT32),
    **dict.fromkeys((Op.LOGICAL_AND, Op.LOGICAL_OR), _Benchmark(ROWS, times=2)),
    Op.LOGICAL_NOT: _Benchmark(ROWS),
}
"""Uses of the operations that are measured, the most typical first."""
_LOGICAL = [Op.LOGICAL_AND, Op.LOGICAL_OR, Op.LOGICAL_NOT]
_ONLY_FLOAT = (Op.ABS, Op.NEG, Op.EXP, Op.SQRT, Op.QUANTIZE)
_QUANT8 = [operation for operation in _BENCHMARKS if operation not in (*_ONLY_FLOAT, *_LOGICAL)]
_FLOAT = [operation for operation in _BENCHMARKS if operation not in (Op.DEQUANTIZE, *_LOGICAL)]

OPERATIONS: Mapping[T, Sequence[Op]] = {
    T.TENSOR_FLOAT32: _FLOAT,
    T.TENSOR_FLOAT16: _FLOAT,
    T.TENSOR_QUANT8_ASYMM: _QUANT8,
    T.TENSOR_QUANT8_ASYMM_SIGNED: _QUANT8,
    T.TENSOR_INT32: [Op.ADD, Op.MUL, Op.SUB, Op.EQUAL, Op.LESS],
    T.TENSOR_BOOL8: _LOGICAL,
}
"""Operations that are measured on tensors of each type, in order."""
