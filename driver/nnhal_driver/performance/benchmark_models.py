"""Benchmark models: small fixed models that measure a device, several for each group of operand types.

The first of a group is a convolution or another typical use of its types, of a size at which CpuRef takes some tenths
of a millisecond. A device that does not run it is measured with the first of the others that it runs, which have one
operation each.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from nnhal.types import DTYPES, AnyArray, Model, OperationType
from nnhal.types import OperandType as T
from nnhal_driver.performance.benchmark_builder import IMAGE, NONE, ROWS, SAME, BenchmarkBuilder
from nnhal_driver.performance.operation_models import OPERATIONS, apply_operation, operation_models


def _convolution(type_: T, bias: T, zero_point: int = 0, *, relaxed: bool = False) -> Model:
    """Return a 3 x 3 convolution of 16 channels, and a sum."""
    quantized = bias == T.TENSOR_INT32
    outer = {"scale": 0.5, "zero_point": zero_point} if quantized else {}
    data = bytearray()
    graph = BenchmarkBuilder(data)
    image = graph.input(type_, IMAGE, **outer)
    numbers = np.arange(16 * 3 * 3 * 16).reshape(16, 3, 3, 16) % 7 + (zero_point if quantized else 0)
    weights = graph.constant(type_, numbers, **({"scale": 0.25, "zero_point": zero_point} if quantized else {}))
    biases = graph.constant(bias, np.zeros(16), **({"scale": 0.125} if quantized else {}))
    padding, stride, none = (graph.constant(T.INT32, value) for value in (SAME, 1, NONE))
    wide = {"scale": 64.0, "zero_point": zero_point} if quantized else {}
    arguments = [image, weights, biases, padding, stride, stride, none]
    convolved = graph.apply(OperationType.CONV_2D, arguments, type_, IMAGE, **wide)
    total = graph.apply(OperationType.ADD, [convolved, image, none], type_, IMAGE, **wide)
    return Model(graph.build(total), operand_values=bytes(data), relax_computation_float32_to_float16=relaxed)


def _int32() -> Model:
    """Return a sum and a product."""
    data = bytearray()
    graph = BenchmarkBuilder(data)
    numbers, none = graph.input(T.TENSOR_INT32, ROWS), graph.constant(T.INT32, NONE)
    total = graph.apply(OperationType.ADD, [numbers, numbers, none], T.TENSOR_INT32, ROWS)
    product = graph.apply(OperationType.MUL, [total, numbers, none], T.TENSOR_INT32, ROWS)
    return Model(graph.build(product), operand_values=bytes(data))


def _bool8() -> Model:
    """Return a logical AND and a NOT."""
    graph = BenchmarkBuilder(bytearray())
    x, y = graph.input(T.TENSOR_BOOL8, ROWS), graph.input(T.TENSOR_BOOL8, ROWS)
    both = graph.apply(OperationType.LOGICAL_AND, [x, y], T.TENSOR_BOOL8, ROWS)
    return Model(graph.build(graph.apply(OperationType.LOGICAL_NOT, [both], T.TENSOR_BOOL8, ROWS)))


def _quant16() -> Model:
    """Return a transformation of boxes, the only use of 16 bits outside of an LSTM."""
    graph = BenchmarkBuilder(bytearray())
    boxes = graph.input(T.TENSOR_QUANT16_ASYMM, (64, 4), scale=0.125)
    deltas = graph.input(T.TENSOR_QUANT8_ASYMM, (64, 8), scale=0.05, zero_point=128)
    batches = graph.input(T.TENSOR_INT32, (64,))
    image = graph.input(T.TENSOR_QUANT16_ASYMM, (1, 2), scale=0.125)
    arguments = [boxes, deltas, batches, image]
    moved = graph.apply(
        OperationType.AXIS_ALIGNED_BBOX_TRANSFORM, arguments, T.TENSOR_QUANT16_ASYMM, (64, 8), scale=0.125
    )
    return Model(graph.build(moved))


def _if(type_: T, operation: OperationType) -> Model:
    """Return an IF with one operation in each branch."""
    data = bytearray()
    branches = []
    for _ in range(2):
        branch = BenchmarkBuilder(data)
        output = apply_operation(branch, type_, operation)
        inputs, result = branch.inputs, branch.describe(output)
        branches.append(branch.build(output))
    main = BenchmarkBuilder(data)
    arguments = [main.input(T.TENSOR_BOOL8, (1,)), main.reference(0), main.reference(1)]
    arguments += [main.input(T(x.type), x.dimensions, scale=x.scale, zero_point=x.zero_point) for x in inputs]
    quantization = {"scale": result.scale, "zero_point": result.zero_point}
    chosen = main.apply(OperationType.IF, arguments, T(result.type), result.dimensions, **quantization)
    return Model(main.build(chosen), tuple(branches), bytes(data))


def _while(type_: T) -> Model:
    """Return a WHILE that counts to ten."""
    quantization = {"scale": 1.0} if type_ == T.TENSOR_QUANT8_ASYMM else {}
    data = bytearray()
    condition, body, main = (BenchmarkBuilder(data) for _ in range(3))
    counter, limit = condition.input(type_, (1,), **quantization), condition.constant(type_, [10], **quantization)
    less = condition.apply(OperationType.LESS, [counter, limit], T.TENSOR_BOOL8, (1,))
    counter, one, none = (
        body.input(type_, (1,), **quantization),
        body.constant(type_, [1], **quantization),
        body.constant(T.INT32, NONE),
    )
    more = body.apply(OperationType.ADD, [counter, one, none], type_, (1,), **quantization)
    arguments = [main.reference(0), main.reference(1), main.input(type_, (1,), **quantization)]
    counted = main.apply(OperationType.WHILE, arguments, type_, (1,), **quantization)
    return Model(main.build(counted), (condition.build(less), body.build(more)), bytes(data))


def _logical_while() -> Model:
    """Return a WHILE that ends when its value is false, which its body negates."""
    condition, body, main = (BenchmarkBuilder(bytearray()) for _ in range(3))
    x = condition.input(T.TENSOR_BOOL8, (1,))
    goes_on = condition.apply(OperationType.LOGICAL_AND, [x, x], T.TENSOR_BOOL8, (1,))
    negated = body.apply(OperationType.LOGICAL_NOT, [body.input(T.TENSOR_BOOL8, (1,))], T.TENSOR_BOOL8, (1,))
    arguments = [main.reference(0), main.reference(1), main.input(T.TENSOR_BOOL8, (1,))]
    result = main.apply(OperationType.WHILE, arguments, T.TENSOR_BOOL8, (1,))
    return Model(main.build(result), (condition.build(goes_on), body.build(negated)))


def _ifs() -> Iterator[Model]:
    """Yield an IF with a sum of floats, then one for each other operation and type."""
    yield _if(T.TENSOR_FLOAT32, OperationType.ADD)
    for type_, operations in OPERATIONS.items():
        for operation in operations:
            if (type_, operation) != (T.TENSOR_FLOAT32, OperationType.ADD):
                yield _if(type_, operation)


def _whiles() -> Iterator[Model]:
    yield from map(_while, (T.TENSOR_INT32, T.TENSOR_FLOAT32, T.TENSOR_FLOAT16, T.TENSOR_QUANT8_ASYMM))
    yield _logical_while()


def _typical_first(make: Callable[[], Model], type_: T, *, relaxed: bool = False) -> Callable[[], Iterator[Model]]:
    """Return a function that yields the typical model of a group, then those of single operations."""

    def models() -> Iterator[Model]:
        yield make()
        yield from operation_models(type_, relaxed=relaxed)

    return models


BENCHMARK_MODELS: Mapping[str, Callable[[], Iterator[Model]]] = {
    "float32": _typical_first(lambda: _convolution(T.TENSOR_FLOAT32, T.TENSOR_FLOAT32), T.TENSOR_FLOAT32),
    "relaxed": _typical_first(
        lambda: _convolution(T.TENSOR_FLOAT32, T.TENSOR_FLOAT32, relaxed=True), T.TENSOR_FLOAT32, relaxed=True
    ),
    "float16": _typical_first(lambda: _convolution(T.TENSOR_FLOAT16, T.TENSOR_FLOAT16), T.TENSOR_FLOAT16),
    "quant8": _typical_first(lambda: _convolution(T.TENSOR_QUANT8_ASYMM, T.TENSOR_INT32, 128), T.TENSOR_QUANT8_ASYMM),
    "quant8_signed": _typical_first(
        lambda: _convolution(T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_INT32), T.TENSOR_QUANT8_ASYMM_SIGNED
    ),
    "quant16": lambda: iter((_quant16(),)),
    "int32": _typical_first(_int32, T.TENSOR_INT32),
    "bool8": _typical_first(_bool8, T.TENSOR_BOOL8),
    "if": _ifs,
    "while": _whiles,
}
"""Functions that yield the models, the most typical first, by the name of the group."""

GROUP_OF_TYPE: Mapping[T, str] = {
    T.FLOAT32: "float32",
    T.INT32: "int32",
    T.UINT32: "int32",
    T.TENSOR_FLOAT32: "float32",
    T.TENSOR_INT32: "int32",
    T.TENSOR_QUANT8_ASYMM: "quant8",
    T.BOOL: "bool8",
    T.TENSOR_QUANT16_SYMM: "quant16",
    T.TENSOR_FLOAT16: "float16",
    T.TENSOR_BOOL8: "bool8",
    T.FLOAT16: "float16",
    T.TENSOR_QUANT8_SYMM_PER_CHANNEL: "quant8_signed",
    T.TENSOR_QUANT16_ASYMM: "quant16",
    T.TENSOR_QUANT8_SYMM: "quant8_signed",
    T.TENSOR_QUANT8_ASYMM_SIGNED: "quant8_signed",
}
"""Group of every operand type that holds data."""


def benchmark_inputs(model: Model) -> list[AnyArray]:
    """Return input values for a benchmark model: ones, or zeros for integers, which may be counters or indexes."""
    operands = [model.main.operands[i] for i in model.main.input_indexes]
    return [np.full(o.dimensions, o.type != T.TENSOR_INT32, DTYPES[o.type]) for o in operands]
