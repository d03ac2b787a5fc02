"""Benchmark models: small fixed models that measure a device, several for each group of operand types.

The first of a group is a convolution or another typical use of its types, of a size at which CpuRef takes some tenths
of a millisecond. A device that does not run it is measured with the first of the others that it runs, which have one
operation each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap

import numpy as np

from nnhal.builder import ModelBuilder
from nnhal.types import DTYPES, AnyArray, Model, Operand, OperationType
from nnhal.types import OperandType as T
from nnhal_driver.performance.operation_models import (
    IMAGE,
    NONE,
    OPERATIONS,
    ROWS,
    SAME,
    add_constant,
    add_input,
    add_weights,
    apply_operation,
    input_of,
    operation_models,
    tensor,
)


def _convolution(type_: T, *, relaxed: bool = False) -> Model:
    """Return a 3 x 3 convolution of 16 channels, and a sum."""
    model = ModelBuilder(relaxed=relaxed)
    image, wide = add_input(model, tensor(type_, IMAGE)), tensor(type_, IMAGE, 64.0)
    weights, bias = add_weights(model, type_, (16, 3, 3, 16))
    convolved = model.add(OperationType.CONV_2D, image, weights, bias, SAME, 1, 1, NONE, output=wide)
    model.output(model.add(OperationType.ADD, convolved, image, NONE, output=wide))
    return model.build()


def _int32() -> Model:
    """Return a sum and a product."""
    model = ModelBuilder()
    numbers = model.input(T.TENSOR_INT32, ROWS)
    total = model.add(OperationType.ADD, numbers, numbers, NONE, output=numbers.description)
    model.output(model.add(OperationType.MUL, total, numbers, NONE, output=numbers.description))
    return model.build()


def _bool8() -> Model:
    """Return a logical AND and a NOT."""
    model = ModelBuilder()
    x, y = model.input(T.TENSOR_BOOL8, ROWS), model.input(T.TENSOR_BOOL8, ROWS)
    both = model.add(OperationType.LOGICAL_AND, x, y, output=x.description)
    model.output(model.add(OperationType.LOGICAL_NOT, both, output=x.description))
    return model.build()


def _quant16() -> Model:
    """Return a transformation of boxes, the only use of 16 bits outside of an LSTM."""
    model = ModelBuilder()
    boxes = model.input(T.TENSOR_QUANT16_ASYMM, (64, 4), scale=0.125)
    deltas = model.input(T.TENSOR_QUANT8_ASYMM, (64, 8), scale=0.05, zero_point=128)
    batches = model.input(T.TENSOR_INT32, (64,))
    image = model.input(T.TENSOR_QUANT16_ASYMM, (1, 2), scale=0.125)
    output = Operand(T.TENSOR_QUANT16_ASYMM, (64, 8), 0.125)
    model.output(model.add(OperationType.AXIS_ALIGNED_BBOX_TRANSFORM, boxes, deltas, batches, image, output=output))
    return model.build()


def _if(type_: T, operation: OperationType) -> Model:
    """Return an IF with one operation in each branch."""
    model = ModelBuilder()
    branches = []
    for _ in range(2):
        with model.subgraph() as branch:
            result = apply_operation(branch, type_, operation)
            branch.output(result)
        branches.append(branch)
    condition, x = model.input(T.TENSOR_BOOL8, (1,)), add_input(model, input_of(type_, operation))
    model.output(model.add(OperationType.IF, condition, *branches, x, output=result.description))
    return model.build()


def _while(type_: T) -> Model:
    """Return a WHILE that counts to ten."""
    number = Operand(type_, (1,), 1.0 if type_ == T.TENSOR_QUANT8_ASYMM else 0.0)
    model = ModelBuilder()
    with model.subgraph() as condition:
        counter, limit = add_input(condition, number), add_constant(condition, number, [10])
        condition.output(condition.add(OperationType.LESS, counter, limit, output=Operand(T.TENSOR_BOOL8, (1,))))
    with model.subgraph() as body:
        counter, one = add_input(body, number), add_constant(body, number, [1])
        body.output(body.add(OperationType.ADD, counter, one, NONE, output=number))
    model.output(model.add(OperationType.WHILE, condition, body, add_input(model, number), output=number))
    return model.build()


def _logical_while() -> Model:
    """Return a WHILE that ends when its value is false, which its body negates."""
    value = Operand(T.TENSOR_BOOL8, (1,))
    model = ModelBuilder()
    with model.subgraph() as condition:
        x = add_input(condition, value)
        condition.output(condition.add(OperationType.LOGICAL_AND, x, x, output=value))
    with model.subgraph() as body:
        body.output(body.add(OperationType.LOGICAL_NOT, add_input(body, value), output=value))
    model.output(model.add(OperationType.WHILE, condition, body, add_input(model, value), output=value))
    return model.build()


def _ifs() -> Iterator[Model]:
    """Yield an IF with a sum of floats, then one for each other operation and type."""
    others = ((type_, operation) for type_, operations in OPERATIONS.items() for operation in operations)
    yield from starmap(_if, dict.fromkeys([(T.TENSOR_FLOAT32, OperationType.ADD), *others]))


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
    "float32": _typical_first(lambda: _convolution(T.TENSOR_FLOAT32), T.TENSOR_FLOAT32),
    "relaxed": _typical_first(lambda: _convolution(T.TENSOR_FLOAT32, relaxed=True), T.TENSOR_FLOAT32, relaxed=True),
    "float16": _typical_first(lambda: _convolution(T.TENSOR_FLOAT16), T.TENSOR_FLOAT16),
    "quant8": _typical_first(lambda: _convolution(T.TENSOR_QUANT8_ASYMM), T.TENSOR_QUANT8_ASYMM),
    "quant8_signed": _typical_first(lambda: _convolution(T.TENSOR_QUANT8_ASYMM_SIGNED), T.TENSOR_QUANT8_ASYMM_SIGNED),
    "quant16": lambda: iter((_quant16(),)),
    "int32": _typical_first(_int32, T.TENSOR_INT32),
    "bool8": _typical_first(_bool8, T.TENSOR_BOOL8),
    "if": _ifs,
    "while": _whiles,
}
"""Functions that yield the models, the most typical first, by the name of the group."""

_TYPES: Mapping[str, Sequence[T]] = {
    "float32": (T.FLOAT32, T.TENSOR_FLOAT32),
    "float16": (T.FLOAT16, T.TENSOR_FLOAT16),
    "quant8": (T.TENSOR_QUANT8_ASYMM,),
    "quant8_signed": (T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT8_SYMM_PER_CHANNEL),
    "quant16": (T.TENSOR_QUANT16_SYMM, T.TENSOR_QUANT16_ASYMM),
    "int32": (T.INT32, T.UINT32, T.TENSOR_INT32),
    "bool8": (T.BOOL, T.TENSOR_BOOL8),
}
GROUP_OF_TYPE: Mapping[T, str] = {type_: group for group, types in _TYPES.items() for type_ in types}
"""Group of every operand type that holds data."""


def benchmark_inputs(model: Model) -> list[AnyArray]:
    """Return input values for a benchmark model: ones, or zeros for integers, which may be counters or indexes."""
    operands = [model.main.operands[i] for i in model.main.input_indexes]
    return [np.full(o.dimensions, o.type != T.TENSOR_INT32, DTYPES[o.type]) for o in operands]
