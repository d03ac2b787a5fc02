"""Benchmark models: small fixed models that measure a device, one for each group of operand types.

Each is a convolution or another typical use of its types, of a size at which CpuRef takes some tenths of a millisecond.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    OperationType,
    Subgraph,
    is_tensor,
)
from nnhal.types import OperandType as T

Shape = Sequence[int]

IMAGE = (1, 16, 16, 16)
_ROWS = (64, 64)
_NONE, _SAME = 0, 1


class _SubgraphBuilder:
    """Builder of a subgraph. The values of constants are appended to `data`, which the subgraphs of a model share."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._operands: list[Operand] = []
        self._operations: list[Operation] = []
        self._inputs: list[int] = []

    def input(self, type_: T, shape: Shape, **quantization: float) -> int:
        self._inputs.append(self._add(type_, shape, OperandLifeTime.SUBGRAPH_INPUT, DataLocation(), quantization))
        return self._inputs[-1]

    def constant(self, type_: T, values: object, **quantization: float) -> int:
        array = np.asarray(values, DTYPES[type_])
        self._data += bytes(-len(self._data) % 8)
        location = DataLocation(0, len(self._data), array.nbytes)
        self._data += array.tobytes()
        return self._add(type_, array.shape, OperandLifeTime.CONSTANT_COPY, location, quantization)

    def reference(self, number: int) -> int:
        """Add an operand for a referenced subgraph of the model."""
        return self._add(T.SUBGRAPH, (), OperandLifeTime.SUBGRAPH, DataLocation(0, number), {})

    def apply(self, type_: OperationType, inputs: Sequence[int], output: T, shape: Shape, **quantization: float) -> int:
        index = self._add(output, shape, OperandLifeTime.TEMPORARY_VARIABLE, DataLocation(), quantization)
        self._operations.append(Operation(type_, tuple(inputs), (index,)))
        return index

    def build(self, *outputs: int) -> Subgraph:
        for i in outputs:
            self._operands[i] = replace(self._operands[i], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
        return Subgraph(tuple(self._operands), tuple(self._operations), tuple(self._inputs), outputs)

    def _add(
        self,
        type_: T,
        shape: Shape,
        lifetime: OperandLifeTime,
        location: DataLocation,
        quantization: Mapping[str, float],
    ) -> int:
        scale, zero_point = float(quantization.get("scale", 0.0)), int(quantization.get("zero_point", 0))
        dimensions = tuple(shape) if is_tensor(type_) else ()
        self._operands.append(Operand(type_, dimensions, scale, zero_point, lifetime, location))
        return len(self._operands) - 1


def _convolution(type_: T, bias: T, zero_point: int = 0, *, relaxed: bool = False) -> Model:
    """Return a 3 x 3 convolution of 16 channels, and a sum."""
    quantized = bias == T.TENSOR_INT32
    outer = {"scale": 0.5, "zero_point": zero_point} if quantized else {}
    data = bytearray()
    graph = _SubgraphBuilder(data)
    image = graph.input(type_, IMAGE, **outer)
    numbers = np.arange(16 * 3 * 3 * 16).reshape(16, 3, 3, 16) % 7 + (zero_point if quantized else 0)
    weights = graph.constant(type_, numbers, **({"scale": 0.25, "zero_point": zero_point} if quantized else {}))
    biases = graph.constant(bias, np.zeros(16), **({"scale": 0.125} if quantized else {}))
    padding, stride, none = (graph.constant(T.INT32, value) for value in (_SAME, 1, _NONE))
    wide = {"scale": 64.0, "zero_point": zero_point} if quantized else {}
    arguments = [image, weights, biases, padding, stride, stride, none]
    convolved = graph.apply(OperationType.CONV_2D, arguments, type_, IMAGE, **wide)
    total = graph.apply(OperationType.ADD, [convolved, image, none], type_, IMAGE, **wide)
    return Model(graph.build(total), operand_values=bytes(data), relax_computation_float32_to_float16=relaxed)


def _int32() -> Model:
    """Return a sum and a product."""
    data = bytearray()
    graph = _SubgraphBuilder(data)
    numbers, none = graph.input(T.TENSOR_INT32, _ROWS), graph.constant(T.INT32, _NONE)
    total = graph.apply(OperationType.ADD, [numbers, numbers, none], T.TENSOR_INT32, _ROWS)
    product = graph.apply(OperationType.MUL, [total, numbers, none], T.TENSOR_INT32, _ROWS)
    return Model(graph.build(product), operand_values=bytes(data))


def _bool8() -> Model:
    """Return a logical AND and a NOT."""
    graph = _SubgraphBuilder(bytearray())
    x, y = graph.input(T.TENSOR_BOOL8, _ROWS), graph.input(T.TENSOR_BOOL8, _ROWS)
    both = graph.apply(OperationType.LOGICAL_AND, [x, y], T.TENSOR_BOOL8, _ROWS)
    return Model(graph.build(graph.apply(OperationType.LOGICAL_NOT, [both], T.TENSOR_BOOL8, _ROWS)))


def _quant16() -> Model:
    """Return a transformation of boxes, the only use of 16 bits outside of an LSTM."""
    graph = _SubgraphBuilder(bytearray())
    boxes = graph.input(T.TENSOR_QUANT16_ASYMM, (64, 4), scale=0.125)
    deltas = graph.input(T.TENSOR_QUANT8_ASYMM, (64, 8), scale=0.05, zero_point=128)
    batches = graph.input(T.TENSOR_INT32, (64,))
    image = graph.input(T.TENSOR_QUANT16_ASYMM, (1, 2), scale=0.125)
    arguments = [boxes, deltas, batches, image]
    moved = graph.apply(
        OperationType.AXIS_ALIGNED_BBOX_TRANSFORM, arguments, T.TENSOR_QUANT16_ASYMM, (64, 8), scale=0.125
    )
    return Model(graph.build(moved))


def _if() -> Model:
    """Return an IF with one sum in each branch."""
    data = bytearray()
    branches = []
    for _ in range(2):
        branch = _SubgraphBuilder(data)
        x, none = branch.input(T.TENSOR_FLOAT32, _ROWS), branch.constant(T.INT32, _NONE)
        total = branch.apply(OperationType.ADD, [x, x, none], T.TENSOR_FLOAT32, _ROWS)
        branches.append(branch.build(total))
    main = _SubgraphBuilder(data)
    condition, x = main.input(T.TENSOR_BOOL8, (1,)), main.input(T.TENSOR_FLOAT32, _ROWS)
    arguments = [condition, main.reference(0), main.reference(1), x]
    chosen = main.apply(OperationType.IF, arguments, T.TENSOR_FLOAT32, _ROWS)
    return Model(main.build(chosen), tuple(branches), bytes(data))


def _while() -> Model:
    """Return a WHILE that counts to ten."""
    data = bytearray()
    condition, body, main = _SubgraphBuilder(data), _SubgraphBuilder(data), _SubgraphBuilder(data)
    counter, limit = condition.input(T.TENSOR_INT32, (1,)), condition.constant(T.TENSOR_INT32, [10])
    less = condition.apply(OperationType.LESS, [counter, limit], T.TENSOR_BOOL8, (1,))
    counter, one, none = (
        body.input(T.TENSOR_INT32, (1,)),
        body.constant(T.TENSOR_INT32, [1]),
        body.constant(T.INT32, _NONE),
    )
    more = body.apply(OperationType.ADD, [counter, one, none], T.TENSOR_INT32, (1,))
    arguments = [main.reference(0), main.reference(1), main.input(T.TENSOR_INT32, (1,))]
    counted = main.apply(OperationType.WHILE, arguments, T.TENSOR_INT32, (1,))
    return Model(main.build(counted), (condition.build(less), body.build(more)), bytes(data))


BENCHMARK_MODELS: Mapping[str, Callable[[], Model]] = {
    "float32": lambda: _convolution(T.TENSOR_FLOAT32, T.TENSOR_FLOAT32),
    "relaxed": lambda: _convolution(T.TENSOR_FLOAT32, T.TENSOR_FLOAT32, relaxed=True),
    "float16": lambda: _convolution(T.TENSOR_FLOAT16, T.TENSOR_FLOAT16),
    "quant8": lambda: _convolution(T.TENSOR_QUANT8_ASYMM, T.TENSOR_INT32, 128),
    "quant8_signed": lambda: _convolution(T.TENSOR_QUANT8_ASYMM_SIGNED, T.TENSOR_INT32),
    "quant16": _quant16,
    "int32": _int32,
    "bool8": _bool8,
    "if": _if,
    "while": _while,
}
"""Functions that build the models, by the name of the group."""

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
