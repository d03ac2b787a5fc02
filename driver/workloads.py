"""The small fixed models by which a device is measured, one for each group of operand types.

They are neither fast nor slow on purpose: a convolution or what else such types are used for, of a size at which CpuRef
takes some tenths of a millisecond.
"""

from collections.abc import Callable, Mapping, Sequence

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


class _Graph:
    """Puts a subgraph together. `data` takes the values of its constants; graphs of one model share it."""

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
        """One of the model's referenced subgraphs."""
        return self._add(T.SUBGRAPH, (), OperandLifeTime.SUBGRAPH, DataLocation(0, number), {})

    def apply(self, type_: OperationType, inputs: Sequence[int], output: T, shape: Shape, **quantization: float) -> int:
        made = self._add(output, shape, OperandLifeTime.TEMPORARY_VARIABLE, DataLocation(), quantization)
        self._operations.append(Operation(type_, tuple(inputs), (made,)))
        return made

    def returning(self, *outputs: int) -> Subgraph:
        for i in outputs:
            one = self._operands[i]
            self._operands[i] = Operand(
                one.type, one.dimensions, one.scale, one.zero_point, OperandLifeTime.SUBGRAPH_OUTPUT
            )
        return Subgraph(tuple(self._operands), tuple(self._operations), tuple(self._inputs), outputs)

    def _add(
        self, type_: T, shape: Shape, life: OperandLifeTime, location: DataLocation, quantization: Mapping[str, float]
    ) -> int:
        scale, zero_point = float(quantization.get("scale", 0.0)), int(quantization.get("zero_point", 0))
        dimensions = tuple(shape) if is_tensor(type_) else ()
        self._operands.append(Operand(type_, dimensions, scale, zero_point, life, location))
        return len(self._operands) - 1


def _convolution(type_: T, bias: T, zero_point: int = 0, *, relaxed: bool = False) -> Model:
    """A 3 x 3 convolution of 16 channels, and a sum."""
    quantized = bias == T.TENSOR_INT32
    outer = {"scale": 0.5, "zero_point": zero_point} if quantized else {}
    data = bytearray()
    graph = _Graph(data)
    image = graph.input(type_, IMAGE, **outer)
    numbers = np.arange(16 * 3 * 3 * 16).reshape(16, 3, 3, 16) % 7 + (zero_point if quantized else 0)
    weights = graph.constant(type_, numbers, **({"scale": 0.25, "zero_point": zero_point} if quantized else {}))
    biases = graph.constant(bias, np.zeros(16), **({"scale": 0.125} if quantized else {}))
    padding, stride, none = (graph.constant(T.INT32, value) for value in (_SAME, 1, _NONE))
    wide = {"scale": 64.0, "zero_point": zero_point} if quantized else {}
    arguments = [image, weights, biases, padding, stride, stride, none]
    made = graph.apply(OperationType.CONV_2D, arguments, type_, IMAGE, **wide)
    total = graph.apply(OperationType.ADD, [made, image, none], type_, IMAGE, **wide)
    return Model(graph.returning(total), operand_values=bytes(data), relax_computation_float32_to_float16=relaxed)


def _int32() -> Model:
    """A sum and a product."""
    data = bytearray()
    graph = _Graph(data)
    numbers, none = graph.input(T.TENSOR_INT32, _ROWS), graph.constant(T.INT32, _NONE)
    total = graph.apply(OperationType.ADD, [numbers, numbers, none], T.TENSOR_INT32, _ROWS)
    product = graph.apply(OperationType.MUL, [total, numbers, none], T.TENSOR_INT32, _ROWS)
    return Model(graph.returning(product), operand_values=bytes(data))


def _bool8() -> Model:
    """ "And" and "not"."""
    graph = _Graph(bytearray())
    one, other = graph.input(T.TENSOR_BOOL8, _ROWS), graph.input(T.TENSOR_BOOL8, _ROWS)
    both = graph.apply(OperationType.LOGICAL_AND, [one, other], T.TENSOR_BOOL8, _ROWS)
    return Model(graph.returning(graph.apply(OperationType.LOGICAL_NOT, [both], T.TENSOR_BOOL8, _ROWS)))


def _quant16() -> Model:
    """Boxes that are moved: the one thing that 16 bits are used for outside of an LSTM."""
    graph = _Graph(bytearray())
    boxes = graph.input(T.TENSOR_QUANT16_ASYMM, (64, 4), scale=0.125)
    deltas = graph.input(T.TENSOR_QUANT8_ASYMM, (64, 8), scale=0.05, zero_point=128)
    batches = graph.input(T.TENSOR_INT32, (64,))
    image = graph.input(T.TENSOR_QUANT16_ASYMM, (1, 2), scale=0.125)
    arguments = [boxes, deltas, batches, image]
    moved = graph.apply(
        OperationType.AXIS_ALIGNED_BBOX_TRANSFORM, arguments, T.TENSOR_QUANT16_ASYMM, (64, 8), scale=0.125
    )
    return Model(graph.returning(moved))


def _if() -> Model:
    """A choice between two branches of one sum each."""
    data = bytearray()
    branches = []
    for _ in range(2):
        branch = _Graph(data)
        x, none = branch.input(T.TENSOR_FLOAT32, _ROWS), branch.constant(T.INT32, _NONE)
        total = branch.apply(OperationType.ADD, [x, x, none], T.TENSOR_FLOAT32, _ROWS)
        branches.append(branch.returning(total))
    main = _Graph(data)
    condition, x = main.input(T.TENSOR_BOOL8, (1,)), main.input(T.TENSOR_FLOAT32, _ROWS)
    arguments = [condition, main.reference(0), main.reference(1), x]
    chosen = main.apply(OperationType.IF, arguments, T.TENSOR_FLOAT32, _ROWS)
    return Model(main.returning(chosen), tuple(branches), bytes(data))


def _while() -> Model:
    """Counts to ten, with one sum in the condition's place and one in the body's."""
    data = bytearray()
    condition, body, main = _Graph(data), _Graph(data), _Graph(data)
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
    return Model(main.returning(counted), (condition.returning(less), body.returning(more)), bytes(data))


WORKLOADS: Mapping[str, Callable[[], Model]] = {
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
"""Models by the name of their group."""

TYPES: Mapping[T, str] = {
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
"""The group of every operand type that holds data."""


def inputs(model: Model) -> list[AnyArray]:
    """Values for the inputs of a workload: ones; zeros where integers count or number something."""
    operands = [model.main.operands[i] for i in model.main.input_indexes]
    return [np.full(o.dimensions, o.type != T.TENSOR_INT32, DTYPES[o.type]) for o in operands]
