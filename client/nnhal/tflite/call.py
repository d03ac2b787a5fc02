"""The registry of converters, and their interface to one TFLite operator.

A converter is registered for operators, and emits NNAPI operations through its `OperatorCall`:

    @converter(BuiltinOperator.EXPAND_DIMS)
    def expand_dims(call: OperatorCall) -> None:
        axis = call.axis(call.value(1), len(call.shape(0)) + 1)
        call.emit(OperationType.EXPAND_DIMS, [call.input(0), call.int32_scalar(axis)])

Operands are denoted by their numbers. Every method raises `TfliteError` if the file lacks the requested item.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from nnhal.operations import SIGNATURES
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import Operator, Tensor, TfliteGraph
from nnhal.tflite.operands import Operands, tensor_operand
from nnhal.tflite_schema import ActivationFunctionType
from nnhal.tflite_schema.shapes.rule import UNKNOWN_RANK, Shape
from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    FusedActivationFunc,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    OperationType,
    type_name,
)

Converter = Callable[["OperatorCall"], None]
AddSubgraph = Callable[[TfliteGraph, int, Sequence[Shape]], int]
"""Convert the subgraph with an index, whose inputs get these shapes, for the graph that runs it."""

CONVERTERS: dict[int, Converter] = {}
"""Every registered converter, by `BuiltinOperator`."""
CUSTOM_CONVERTERS: dict[str, Converter] = {}
"""Every registered converter of a custom operator, by its name."""

_ACTIVATIONS = {
    ActivationFunctionType.NONE: FusedActivationFunc.NONE,
    ActivationFunctionType.RELU: FusedActivationFunc.RELU,
    ActivationFunctionType.RELU_N1_TO_1: FusedActivationFunc.RELU1,
    ActivationFunctionType.RELU6: FusedActivationFunc.RELU6,
}
_ACTIVATION_NAMES: dict[int, str] = {function: function.name for function in ActivationFunctionType}
_REQUIRED = object()
_SMALL = 2**14
"""Number of elements up to which the time of a few additional operations does not matter."""


def converter(*operators: int) -> Callable[[Converter], Converter]:
    """Register a converter for `BuiltinOperator` codes."""

    def register(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(operators, function))
        return function

    return register


def custom_converter(name: str) -> Callable[[Converter], Converter]:
    """Register a converter for the custom operators of a name."""

    def register(function: Converter) -> Converter:
        CUSTOM_CONVERTERS[name] = function
        return function

    return register


class OperatorCall:
    """A TFLite operator during its conversion. `emit` adds NNAPI operations to `operations`."""

    def __init__(self, graph: TfliteGraph, operands: Operands, operator: Operator, add_subgraph: AddSubgraph) -> None:
        self.operator = operator
        self.operations: list[Operation] = []
        self._graph = graph
        self._operands = operands
        self._add_subgraph = add_subgraph

    @property
    def counterpart(self) -> OperationType:
        """The NNAPI operation with the operator's name."""
        return OperationType[self.operator.name]

    # ---- Contents of the file -----------------------------------------------------------------------------

    def has_input(self, position: int) -> bool:
        """Return whether an optional input is present."""
        return position < len(self.operator.inputs) and self.operator.inputs[position] >= 0

    def tensor(self, position: int) -> Tensor:
        """Return the tensor of an input."""
        if not self.has_input(position):
            raise TfliteError(f"lacks input {position}")
        return self._graph.tensors[self.operator.inputs[position]]

    def shape(self, position: int, rank: int | None = None) -> tuple[int, ...]:
        """Return the shape of an input, whose rank must be `rank` unless that is None."""
        shape = self.tensor(position).shape
        if shape == UNKNOWN_RANK:
            raise TfliteError(f"{self.tensor(position)} has a rank that is only known when the model runs")
        if rank is not None and len(shape) != rank:
            raise TfliteError(f"{self.tensor(position)} has shape {list(shape)}; expected rank {rank}")
        return shape

    def known_shape(self, position: int, rank: int | None = None) -> tuple[int, ...]:
        """Return the shape of an input like `shape`. All of its dimensions must be known."""
        shape = self.shape(position, rank)
        if any(length <= 0 for length in shape):
            raise TfliteError(f"{self.tensor(position)} has unknown dimensions: {list(shape)}")
        return shape

    def require_dimensions(self, position: int) -> None:
        """Raise TfliteError for a tensor of rank 0: its shape [1] in NNAPI would change the rank of the output."""
        if not self.shape(position):
            raise TfliteError(f"{self.tensor(position)} has rank 0; NNAPI has no such tensors")

    def is_constant(self, position: int) -> bool:
        """Return whether the value of an input is known."""
        return self.tensor(position).is_constant

    def values(self, position: int) -> AnyArray:
        """Return the elements of an input, which must be a constant."""
        return self._operands.values(self.tensor(position).index)

    def value(self, position: int) -> Any:
        """Return the single element of an input, which must be a constant."""
        values = self.values(position)
        if values.size != 1:
            raise TfliteError(f"{self.tensor(position)} has {values.size} elements; expected 1")
        return values.item()

    def integers(self, position: int) -> list[int]:
        """Return the elements of an input, which must be constant integers, in one list."""
        values = self.values(position)
        if values.dtype.kind not in "iu":
            raise TfliteError(f"{self.tensor(position)} has type {values.dtype.name}; expected integers")
        numbers: list[int] = values.reshape(-1).tolist()
        return numbers

    def output(self, position: int = 0) -> Operand:
        """Return the NNAPI description of an output."""
        if position >= len(self.operator.outputs):
            raise TfliteError(f"lacks output {position}")
        return tensor_operand(self._graph.tensors[self.operator.outputs[position]])

    def known_output(self, position: int = 0) -> Operand:
        """Return the NNAPI description of an output like `output`. All of its dimensions must be known."""
        operand = self.output(position)
        if any(length <= 0 for length in operand.dimensions):
            raise TfliteError(f"output {position} has unknown dimensions: {list(operand.dimensions)}")
        return operand

    def require_same_quantization(self, reason: str) -> None:
        """Raise TfliteError with a reason if inputs of the output's type have another scale or zero point."""
        operands = [*map(self.operand, self.inputs()), *map(self.output, range(len(self.operator.outputs)))]
        type_ = self.output().type
        if len({(operand.scale, operand.zero_point) for operand in operands if operand.type == type_}) > 1:
            raise TfliteError(f"scales or zero points differ: {reason}")

    def require_small(self, reason: str) -> None:
        """Raise TfliteError with a reason if the output is large, for slow compositions: LiteRT is faster then."""
        if (elements := prod(self.known_output().dimensions)) > _SMALL:
            raise TfliteError(f"has {elements} elements: {reason}")

    def require_unquantized(self, reason: str) -> None:
        """Raise TfliteError with a reason if the output is quantized."""
        if self.output().scale:
            raise TfliteError(f"is quantized: {reason}")

    def option(self, name: str, default: object = _REQUIRED) -> Any:
        """Return a field of the options, or `default` without options. Without a default, the options are required."""
        value = self.operator.options.get(name, default)
        if value is _REQUIRED:
            raise TfliteError(f"has no option {name}")
        return value

    @staticmethod
    def axis(axis: int, rank: int) -> int:
        """Return an axis from 0 to rank - 1. TFLite may count it from the end."""
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise TfliteError(f"axis {axis} is out of range for rank {rank}")
        return axis % rank

    # ---- Operands -----------------------------------------------------------------------------------------

    def operand(self, number: int) -> Operand:
        """Return the operand with a number."""
        return self._operands[number]

    def input(self, position: int) -> int:
        """Return the operand of an input."""
        return self._operands.read(self.tensor(position).index)

    def description(self, position: int) -> Operand:
        """Return the NNAPI description of an input, without adding an operand."""
        return tensor_operand(self.tensor(position))

    def inputs(self) -> list[int]:
        """Return the operands of all inputs."""
        return [self.input(position) for position in range(len(self.operator.inputs))]

    def bias(self, position: int, input_: int, filter_: int, channels: int) -> int:
        """Return the operand of a bias, with zeros if the operator has no bias.

        A quantized bias is int32. Its scale is the product of those of input and filter, or 0 for a per-channel filter.
        """
        data, weights = self.operand(input_), self.operand(filter_)
        if data.type in (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16):
            if self.has_input(position):
                return self.input(position)
            return self._operands.constant(OperandType(data.type), np.zeros(channels))
        scale = float(np.float32(data.scale) * np.float32(weights.scale))
        if self.has_input(position):
            return self._operands.read_bias(self.tensor(position).index, scale)
        return self._operands.constant(OperandType.TENSOR_INT32, np.zeros(channels), scale)

    def activation(self) -> int:
        """Return the operand of the fused activation."""
        function = self.option("fused_activation_function", ActivationFunctionType.NONE)
        if function not in _ACTIVATIONS:
            name = _ACTIVATION_NAMES.get(function, function)
            raise TfliteError(f"fused activation {name} has no NNAPI counterpart")
        return self.int32_scalar(_ACTIVATIONS[function])

    def require_no_activation(self) -> None:
        """Raise TfliteError for a fused activation, for NNAPI operations without one."""
        function = self.option("fused_activation_function", ActivationFunctionType.NONE)
        if function != ActivationFunctionType.NONE:
            name = _ACTIVATION_NAMES.get(function, function)
            raise TfliteError(f"fused activation {name}: the NNAPI operation has none")

    def int32_scalar(self, value: int) -> int:
        """Return an INT32 scalar."""
        if not -(2**31) <= value < 2**31:
            raise TfliteError(f"{value} does not fit NNAPI's INT32")
        return self._operands.scalar(OperandType.INT32, int(value))

    def bool_scalar(self, value: bool) -> int:
        """Return a BOOL scalar."""
        return self._operands.scalar(OperandType.BOOL, bool(value))

    def float_scalar(self, value: float, like: Operand) -> int:
        """Return a FLOAT16 scalar if the operand `like` is TENSOR_FLOAT16, otherwise a FLOAT32 scalar."""
        half = like.type == OperandType.TENSOR_FLOAT16
        return self._operands.scalar(OperandType.FLOAT16 if half else OperandType.FLOAT32, float(value))

    def int32_tensor(self, values: Sequence[int]) -> int:
        """Return a constant TENSOR_INT32 of rank 1."""
        return self.constant(np.array(values, np.int64), Operand(OperandType.TENSOR_INT32))

    def constant(self, values: AnyArray, like: Operand) -> int:
        """Add a constant tensor with the type and quantization of an operand."""
        limits = np.iinfo(DTYPES[like.type].str) if DTYPES[like.type].kind in "iu" else None
        if limits and values.dtype.kind == "f":
            raise TfliteError(f"a constant of {type_name(like.type)} has the type {values.dtype.name}")
        if limits and values.size and (values.min() < limits.min or values.max() > limits.max):
            raise TfliteError(
                f"a constant has values from {values.min()} to {values.max()}: too large for {type_name(like.type)}"
            )
        return self._operands.constant(like.type, values, like.scale, like.zero_point)

    def subgraph(self, index: int, inputs: Sequence[int]) -> int:
        """Return an operand of type SUBGRAPH for another subgraph of the file, which is converted, too.

        `inputs` are the tensors that have the shapes of its inputs.
        """
        shapes = [self._graph.tensors[tensor].shape for tensor in inputs]
        location = DataLocation(offset=self._add_subgraph(self._graph, index, shapes))
        operand = Operand(OperandType.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH, location=location)
        return self._operands.add(operand)

    def add(self, operand: Operand) -> int:
        """Add an operand that is a temporary or has no value."""
        return self._operands.add(operand)

    def write(self, position: int) -> int:
        """Return the operand of an output, for operations that write some of the outputs."""
        self.output(position)
        return self._operands.write(self.operator.outputs[position])

    # ---- Operations ---------------------------------------------------------------------------------------

    def emit(self, type_: OperationType, inputs: Sequence[int], outputs: Sequence[int] | None = None) -> None:
        """Add an operation that writes operands; by default the outputs of the operator."""
        if outputs is None:
            outputs = [self._operands.write(index) for index in self.operator.outputs]
        if reason := _signature_error(type_, list(map(self.operand, inputs)), list(map(self.operand, outputs))):
            raise TfliteError(f"NNAPI's {type_.name} does not fit: {reason}")
        self.operations.append(Operation(type_, tuple(inputs), tuple(outputs)))

    def apply(self, type_: OperationType, inputs: Sequence[int], like: Operand, shape: Sequence[int]) -> int:
        """Add an operation and return its output: a new temporary of a shape, with type and quantization of `like`."""
        output = self.add(Operand(like.type, tuple(shape), like.scale, like.zero_point))
        self.emit(type_, inputs, [output])
        return output

    def chain(self, value: int, *steps: tuple[OperationType, Sequence[int], Sequence[int]]) -> None:
        """Add operations of which each one takes the result of the one before. The last one writes the output.

        A step has a type, further inputs, and the shape of its result. A RESHAPE follows if the last result does not
        have the output's shape.
        """
        output = self.known_output()
        if not steps or tuple(steps[-1][2]) != output.dimensions:
            steps = (*steps, (OperationType.RESHAPE, [self.int32_tensor(output.dimensions)], output.dimensions))
        for type_, inputs, shape in steps[:-1]:
            value = self.apply(type_, [value, *inputs], output, shape)
        type_, inputs, _ = steps[-1]
        self.emit(type_, [value, *inputs])


def _signature_error(type_: OperationType, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> str | None:
    """Return an error message if an operation does not take operands. TFLite allows scales that NNAPI does not."""
    if type_ not in SIGNATURES:
        return None
    bound = SIGNATURES[type_].bind(inputs, outputs)
    if isinstance(bound, str):
        return bound
    for i, output in enumerate(outputs):
        expected = SIGNATURES[type_].output_quantization(inputs, output)
        if expected is not None and expected != (output.scale, output.zero_point):
            actual = f"scale {output.scale} and zero point {output.zero_point}"
            return f"output {i} ({type_name(output.type)}) has {actual}; it must have {expected[0]} and {expected[1]}"
    return None
