"""Benchmark models of one operation each, for devices that do not run the typical model of a group."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from nnhal.types import Model, OperationType
from nnhal.types import OperandType as T
from nnhal_driver.performance.benchmark_builder import IMAGE, NONE, ROWS, SAME, BenchmarkBuilder

Apply = Callable[[BenchmarkBuilder, T, OperationType], int]
"""Function that applies an operation to new inputs of a type, and returns the output."""


def operation_models(type_: T, *, relaxed: bool = False) -> Iterator[Model]:
    """Yield a model for each operation that is measured on tensors of a type, the most typical first."""
    for operation in OPERATIONS[type_]:
        data = bytearray()
        graph = BenchmarkBuilder(data)
        output = apply_operation(graph, type_, operation)
        yield Model(graph.build(output), operand_values=bytes(data), relax_computation_float32_to_float16=relaxed)


def apply_operation(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    """Apply an operation to new inputs of a type, and return the output."""
    return _APPLY[operation](graph, type_, operation)


def _quantization(type_: T, scale: float, offset: int) -> dict[str, float]:
    """Return the quantization of a tensor whose zero point is `offset` above the smallest value; {} for others."""
    lowest = {T.TENSOR_QUANT8_ASYMM: 0, T.TENSOR_QUANT8_ASYMM_SIGNED: -128}.get(type_)
    return {} if lowest is None else {"scale": scale, "zero_point": lowest + offset}


def _binary(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    x = graph.input(type_, IMAGE, **_quantization(type_, 0.5, 128))
    arguments = [x, x, graph.constant(T.INT32, NONE)]
    return graph.apply(operation, arguments, type_, IMAGE, **_quantization(type_, 4.0, 128))


def _unary(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    x = graph.input(type_, IMAGE, **_quantization(type_, 0.5, 128))
    return graph.apply(operation, [x], type_, IMAGE, **_quantization(type_, *_OUTPUTS.get(operation, (0.5, 128))))


def _softmax(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    x = graph.input(type_, ROWS, **_quantization(type_, 0.5, 128))
    beta = graph.constant(T.FLOAT16 if type_ == T.TENSOR_FLOAT16 else T.FLOAT32, 1.0)
    return graph.apply(operation, [x, beta], type_, ROWS, **_quantization(type_, 1 / 256, 0))


def _fully_connected(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    quantization = _quantization(type_, 0.25, 128)
    x = graph.input(type_, ROWS, **_quantization(type_, 0.5, 128))
    numbers = np.arange(64 * 64).reshape(ROWS) % 7 + quantization.get("zero_point", 0)
    weights = graph.constant(type_, numbers, **quantization)
    bias_type, bias = (T.TENSOR_INT32, {"scale": 0.125}) if quantization else (type_, {})
    arguments = [x, weights, graph.constant(bias_type, np.zeros(64), **bias), graph.constant(T.INT32, NONE)]
    return graph.apply(operation, arguments, type_, ROWS, **_quantization(type_, 64.0, 128))


def _pool(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    quantization = _quantization(type_, 0.5, 128)
    x = graph.input(type_, IMAGE, **quantization)
    numbers = [graph.constant(T.INT32, value) for value in (SAME, 1, 1, 3, 3, NONE)]
    return graph.apply(operation, [x, *numbers], type_, IMAGE, **quantization)


def _reshape(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    quantization = _quantization(type_, 0.5, 128)
    arguments = [graph.input(type_, IMAGE, **quantization), graph.constant(T.TENSOR_INT32, ROWS)]
    return graph.apply(operation, arguments, type_, ROWS, **quantization)


def _transpose(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    quantization = _quantization(type_, 0.5, 128)
    arguments = [graph.input(type_, ROWS, **quantization), graph.constant(T.TENSOR_INT32, [1, 0])]
    return graph.apply(operation, arguments, type_, ROWS, **quantization)


def _compare(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    x = graph.input(type_, ROWS, **_quantization(type_, 0.5, 128))
    return graph.apply(operation, [x, x], T.TENSOR_BOOL8, ROWS)


def _logical(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    x = graph.input(type_, ROWS)
    return graph.apply(operation, [x] if operation == OperationType.LOGICAL_NOT else [x, x], type_, ROWS)


def _quantize(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    target = T.TENSOR_QUANT8_ASYMM
    return graph.apply(operation, [graph.input(type_, ROWS)], target, ROWS, **_quantization(target, 0.5, 128))


def _dequantize(graph: BenchmarkBuilder, type_: T, operation: OperationType) -> int:
    x = graph.input(type_, ROWS, **_quantization(type_, 0.5, 128))
    return graph.apply(operation, [x], T.TENSOR_FLOAT32, ROWS)


_OUTPUTS = {OperationType.LOGISTIC: (1 / 256, 0), OperationType.TANH: (1 / 128, 128)}
"""Scale and offset where the operation fixes the quantization of its output."""

_APPLY: Mapping[OperationType, Apply] = {
    OperationType.FULLY_CONNECTED: _fully_connected,
    OperationType.ADD: _binary,
    OperationType.MUL: _binary,
    OperationType.SUB: _binary,
    OperationType.MAX_POOL_2D: _pool,
    OperationType.AVERAGE_POOL_2D: _pool,
    OperationType.SOFTMAX: _softmax,
    OperationType.RELU: _unary,
    OperationType.RELU6: _unary,
    OperationType.RELU1: _unary,
    OperationType.LOGISTIC: _unary,
    OperationType.TANH: _unary,
    OperationType.ABS: _unary,
    OperationType.NEG: _unary,
    OperationType.EXP: _unary,
    OperationType.SQRT: _unary,
    OperationType.RESHAPE: _reshape,
    OperationType.TRANSPOSE: _transpose,
    OperationType.EQUAL: _compare,
    OperationType.LESS: _compare,
    OperationType.QUANTIZE: _quantize,
    OperationType.DEQUANTIZE: _dequantize,
    OperationType.LOGICAL_AND: _logical,
    OperationType.LOGICAL_OR: _logical,
    OperationType.LOGICAL_NOT: _logical,
}


def _operations(*left_out: Apply) -> Sequence[OperationType]:
    return [operation for operation, apply in _APPLY.items() if apply not in (_logical, *left_out)]


_ONLY_FLOAT = (OperationType.ABS, OperationType.NEG, OperationType.EXP, OperationType.SQRT)
_QUANT8 = [operation for operation in _operations(_quantize) if operation not in _ONLY_FLOAT]
_FLOAT = _operations(_dequantize)

OPERATIONS: Mapping[T, Sequence[OperationType]] = {
    T.TENSOR_FLOAT32: _FLOAT,
    T.TENSOR_FLOAT16: _FLOAT,
    T.TENSOR_QUANT8_ASYMM: _QUANT8,
    T.TENSOR_QUANT8_ASYMM_SIGNED: _QUANT8,
    T.TENSOR_INT32: [operation for operation, apply in _APPLY.items() if apply in (_binary, _compare)],
    T.TENSOR_BOOL8: [operation for operation, apply in _APPLY.items() if apply == _logical],
}
"""Operations that are measured on tensors of each type, in order."""
