"""What a converter gets: one TFLite operator, with what it needs to become NNAPI operations; and the registry.

A converter is registered on the operators it converts, and emits operations through its `Call`:

    @converter(BuiltinOperator.EXPAND_DIMS)
    def expand_dims(call: Call) -> None:
        axis = call.axis(call.value(1), len(call.shape(0)) + 1)
        call.emit(OperationType.EXPAND_DIMS, [call.input(0), call.int32(axis)])

Operands are referred to by their numbers. Every method raises `TfliteError` for what the file lacks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tflite

from nnhal.operations import SIGNATURES
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.operands import Operands, describe
from nnhal.tflite.reader import Graph, Operator, Tensor
from nnhal.types import AnyArray, FusedActivationFunc, Operand, OperandType, Operation, OperationType, type_name

Converter = Callable[["Call"], None]

CONVERTERS: dict[int, Converter] = {}
"""Every registered converter, by `tflite.BuiltinOperator`."""

_ACTIVATIONS = {
    tflite.ActivationFunctionType.NONE: FusedActivationFunc.NONE,
    tflite.ActivationFunctionType.RELU: FusedActivationFunc.RELU,
    tflite.ActivationFunctionType.RELU_N1_TO_1: FusedActivationFunc.RELU1,
    tflite.ActivationFunctionType.RELU6: FusedActivationFunc.RELU6,
}
_ACTIVATION_NAMES = {value: name for name, value in vars(tflite.ActivationFunctionType).items() if name.isupper()}
_REQUIRED = object()


def converter(*operators: int) -> Callable[[Converter], Converter]:
    """Registers a converter for `tflite.BuiltinOperator` codes."""

    def register(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(operators, function))
        return function

    return register


class Call:
    """One TFLite operator; `emit` adds what it is in NNAPI to `operations`."""

    def __init__(self, graph: Graph, operands: Operands, operator: Operator) -> None:
        self.operator = operator
        self.operations: list[Operation] = []
        self._graph = graph
        self._operands = operands

    # ---- What the file says -------------------------------------------------------------------------------

    def has(self, position: int) -> bool:
        """Whether an optional input is given."""
        return position < len(self.operator.inputs) and self.operator.inputs[position] >= 0

    def tensor(self, position: int) -> Tensor:
        """The tensor of an input."""
        if not self.has(position):
            raise TfliteError(f"lacks input {position}")
        return self._graph.tensors[self.operator.inputs[position]]

    def shape(self, position: int, rank: int | None = None) -> tuple[int, ...]:
        """Shape of an input, which must have the rank."""
        shape = self.tensor(position).shape
        if rank is not None and len(shape) != rank:
            raise TfliteError(f"{self.tensor(position)} has shape {list(shape)}; rank {rank} is wanted")
        return shape

    def refuse_scalar(self, position: int) -> None:
        """Refuses a tensor of rank 0 where NNAPI's result would have another rank, since it has shape [1] there."""
        if not self.shape(position):
            raise TfliteError(f"{self.tensor(position)} has rank 0; NNAPI has no such tensors")

    def values(self, position: int) -> AnyArray:
        """Elements of an input that must be a constant."""
        return self._operands.values(self.tensor(position).index)

    def value(self, position: int) -> Any:
        """The one element of an input that must be a constant."""
        values = self.values(position)
        if values.size != 1:
            raise TfliteError(f"{self.tensor(position)} has {values.size} elements; one is wanted")
        return values.item()

    def result(self, position: int = 0) -> Operand:
        """What an output of the operator is in NNAPI."""
        if position >= len(self.operator.outputs):
            raise TfliteError(f"lacks output {position}")
        return describe(self._graph.tensors[self.operator.outputs[position]])

    def option(self, name: str, default: object = _REQUIRED) -> Any:
        """A field of the options. `default`: what it is where the operator has no options; else they are required."""
        value = self.operator.options.get(name, default)
        if value is _REQUIRED:
            raise TfliteError(f"has no option {name}")
        return value

    @staticmethod
    def axis(axis: int, rank: int) -> int:
        """An axis, which TFLite may count from the end, from 0 to rank - 1."""
        if not -rank <= axis < rank:
            raise TfliteError(f"axis {axis} is not in a tensor of rank {rank}")
        return axis % rank

    # ---- Operands -----------------------------------------------------------------------------------------

    def operand(self, number: int) -> Operand:
        """The operand with a number."""
        return self._operands[number]

    def input(self, position: int) -> int:
        """The operand of an input."""
        return self._operands.read(self.tensor(position).index)

    def inputs(self) -> list[int]:
        """The operands of all inputs."""
        return [self.input(position) for position in range(len(self.operator.inputs))]

    def bias(self, position: int, input_: int, filter_: int, channels: int) -> int:
        """The operand of a bias: zeros where it is not given.

        A quantised one is int32 with the scale of input times filter, or 0 with a per-channel filter.
        """
        data, weights = self.operand(input_), self.operand(filter_)
        if data.type in (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16):
            if self.has(position):
                return self.input(position)
            return self._operands.constant(OperandType(data.type), np.zeros(channels))
        scale = float(np.float32(data.scale) * np.float32(weights.scale))
        if self.has(position):
            return self._operands.read_bias(self.tensor(position).index, scale)
        return self._operands.constant(OperandType.TENSOR_INT32, np.zeros(channels), scale)

    def activation(self) -> int:
        """The operand of the fused activation."""
        function = self.option("FusedActivationFunction", tflite.ActivationFunctionType.NONE)
        if function not in _ACTIVATIONS:
            name = _ACTIVATION_NAMES.get(function, function)
            raise TfliteError(f"fused activation {name} has no NNAPI counterpart")
        return self.int32(_ACTIVATIONS[function])

    def no_activation(self) -> None:
        """Refuses a fused activation, for operations that NNAPI gives none."""
        function = self.option("FusedActivationFunction", tflite.ActivationFunctionType.NONE)
        if function != tflite.ActivationFunctionType.NONE:
            name = _ACTIVATION_NAMES.get(function, function)
            raise TfliteError(f"fused activation {name}: NNAPI's operation has none")

    def int32(self, value: int) -> int:
        """An INT32 scalar."""
        if not -(2**31) <= value < 2**31:
            raise TfliteError(f"{value} does not fit NNAPI's INT32")
        return self._operands.scalar(OperandType.INT32, int(value))

    def flag(self, value: bool) -> int:
        """A BOOL scalar."""
        return self._operands.scalar(OperandType.BOOL, bool(value))

    def real(self, value: float, like: Operand) -> int:
        """A FLOAT16 scalar for operations on TENSOR_FLOAT16, else FLOAT32; `like`: the operand operated on."""
        half = like.type == OperandType.TENSOR_FLOAT16
        return self._operands.scalar(OperandType.FLOAT16 if half else OperandType.FLOAT32, float(value))

    def int32s(self, values: Sequence[int]) -> int:
        """A constant TENSOR_INT32 of rank 1."""
        return self._operands.constant(OperandType.TENSOR_INT32, np.array(values, np.int32))

    def add(self, operand: Operand) -> int:
        """A further operand: a temporary, or one without a value."""
        return self._operands.add(operand)

    # ---- Operations ---------------------------------------------------------------------------------------

    def emit(self, type_: OperationType, inputs: Sequence[int], outputs: Sequence[int] | None = None) -> None:
        """Adds an operation. `outputs`: those of the operator, unless it writes temporaries.

        Raises:
            TfliteError: NNAPI's operation does not take such operands.
        """
        if outputs is None:
            outputs = [self._operands.write(index) for index in self.operator.outputs]
        given, got = [self.operand(number) for number in inputs], [self.operand(number) for number in outputs]
        if reason := _misfit(type_, given, got):
            raise TfliteError(f"NNAPI's {type_.name} does not fit: {reason}")
        self.operations.append(Operation(type_, tuple(inputs), tuple(outputs)))


def _misfit(type_: OperationType, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> str | None:
    """Why an operation does not take operands; its outputs may have scales that TFLite allows and NNAPI does not."""
    if type_ not in SIGNATURES:
        return None
    bound = SIGNATURES[type_].bind(inputs, outputs)
    if isinstance(bound, str):
        return bound
    for i, output in enumerate(outputs):
        wanted = SIGNATURES[type_].output_quantization(inputs, output)
        if wanted is not None and wanted != (output.scale, output.zero_point):
            found = f"scale {output.scale} and zero point {output.zero_point}"
            return f"output {i} ({type_name(output.type)}) has {found}; it must have {wanted[0]} and {wanted[1]}"
    return None
