"""Lowering of NNAPI operations to TFLite operators: shared parts of the converters in `litert.operations`.

    @converter(OperationType.FLOOR, limits=ELEMENTWISE_LIMITS)
    def floor(lower: Lowering) -> None:
        lower.emit("FLOOR", [lower.input("input")], [lower.output()])

A converter reads constants and shapes from `lower.call`, which has passed the shape rule, and adds operators. It raises
`Unsupported` if the engine computes something else. TENSOR_FLOAT16 is computed in float32, as in CpuRef: inputs are
widened and outputs narrowed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from nnhal.tflite_schema.packing import Quantization, TensorSpec
from nnhal.types import (
    AnyArray,
    Operand,
    OperandLifeTime,
    OperandType,
    OperationType,
    SymmPerChannelQuantParams,
    type_name,
)
from nnhal_driver.backends.litert.folding import GraphConstants
from nnhal_driver.backends.litert.limits import DEFAULT_LIMITS, KernelLimits
from nnhal_driver.backends.litert.shape_analysis import CHECKED_BY_ENGINE, Shapes, StaticCall, Unsupported
from nnhal_driver.backends.litert.writer import ModelWriter
from nnhal_driver.operations.call import Shape
from nnhal_driver.operations.elementwise.quantization import dequantize_array

Converter = Callable[["Lowering"], None]

CONVERTERS: dict[int, Converter] = {}
"""Registered converters, by operation type."""
LIMITS: dict[int, KernelLimits] = {}
"""Limits of the engine's kernels, by operation type."""
FLOAT = TensorSpec("FLOAT32")
INT32 = TensorSpec("INT32")
BOOL = TensorSpec("BOOL")

_TYPES: dict[int, str] = {
    OperandType.TENSOR_FLOAT32: "FLOAT32",
    OperandType.TENSOR_FLOAT16: "FLOAT16",
    OperandType.TENSOR_INT32: "INT32",
    OperandType.INT32: "INT32",
    OperandType.TENSOR_BOOL8: "BOOL",
    OperandType.TENSOR_QUANT8_ASYMM: "UINT8",
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: "INT8",
    OperandType.TENSOR_QUANT8_SYMM: "INT8",
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: "INT8",
    OperandType.TENSOR_QUANT16_SYMM: "INT16",
    OperandType.TENSOR_QUANT16_ASYMM: "UINT16",
}


def converter(
    *types: int, limits: KernelLimits = DEFAULT_LIMITS, checked_by_engine: str | None = None
) -> Callable[[Converter], Converter]:
    """Register the converter of operation types. `checked_by_engine`: an argument for `CHECKED_BY_ENGINE`."""

    def register(function: Converter) -> Converter:
        for type_ in types:
            assert type_ not in CONVERTERS, f"operation type {type_} has two converters"
            CONVERTERS[type_], LIMITS[type_] = function, limits
            if checked_by_engine:
                CHECKED_BY_ENGINE[type_] = checked_by_engine
        return function

    return register


def spec_of(operand: Operand) -> TensorSpec:
    """Return the type of an operand's tensor in the engine.

    Raises:
        Unsupported: the engine has no such type.
    """
    name = _TYPES.get(operand.type)
    if name is None:
        raise Unsupported(f"{type_name(operand.type)} has no counterpart in the engine")
    params = operand.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        return TensorSpec(name, Quantization(params.scales, (0,) * len(params.scales), params.channel_dim))
    if operand.scale and name != "INT32":
        return TensorSpec(name, Quantization((operand.scale,), (operand.zero_point,)))
    return TensorSpec(name)


class Network:
    """Operations that become one TFLite model, with the shapes of all their operands."""

    def __init__(self, constants: GraphConstants, shapes: Shapes) -> None:
        self.writer = ModelWriter()
        self.constants = constants
        self.shapes = shapes
        self.tensors: dict[int, int] = {}
        self.float_tensors: dict[int, int] = {}

    def tensor(self, index: int, operand: Operand) -> int:
        """Return the tensor of an operand, in the operand's own type."""
        if index not in self.tensors:
            spec = spec_of(operand)
            if index in self.constants:
                shape, value = self.constants.shape(index), self.constants.value(index)
                self.tensors[index] = self.writer.constant(spec, shape, value)
            else:
                self.tensors[index] = self.writer.tensor(spec, self.shapes[index])
        return self.tensors[index]

    def float_tensor(self, index: int, operand: Operand) -> int:
        """Return the tensor of a TENSOR_FLOAT16, widened to float32."""
        if index not in self.float_tensors:
            if index in self.constants:
                self.float_tensors[index] = self.computed(index, FLOAT, lambda value: value.astype(np.float32))
            else:
                self.float_tensors[index] = self.writer.tensor(FLOAT, self.shapes[index])
                self.cast(self.tensor(index, operand), self.float_tensors[index])
        return self.float_tensors[index]

    def computed(self, index: int, spec: TensorSpec, compute: Callable[[AnyArray], AnyArray]) -> int:
        """Return a constant tensor that is computed from a constant operand when the model is written."""
        shape = self.constants.shape(index)
        return self.writer.constant(spec, shape, lambda: compute(self.constants.array(index)))

    def cast(self, source: int, target: int) -> None:
        """Add a CAST."""
        self.writer.operator("CAST", [source], [target], "", {})


class Lowering:
    """Lowering of one operation.

    Attributes:
        call: constants and shapes of the operation.
        positions: operand index by argument name.
    """

    def __init__(self, network: Network, call: StaticCall) -> None:
        self.call = call
        self.network = network
        self.writer = network.writer
        self.positions = call.view.positions
        self._deferred: list[Callable[[], None]] = []  # run in reverse order after the operation's own operators

    @cached_property
    def operation_name(self) -> str:
        """Name of the operation, which many operators of the engine have, too."""
        return OperationType(self.call.view.type).name

    @property
    def options_name(self) -> str:
        """Name of the table of options of the operator with the operation's name."""
        return self.operation_name.title().replace("_", "") + "Options"

    @property
    def argument_names(self) -> list[str]:
        """Names of the inputs in the order of the signature."""
        arguments = self.call.view.arguments
        assert arguments is not None
        return list(arguments.inputs)

    def convert(self) -> None:
        """Add the operation's operators.

        Raises:
            Unsupported: the engine cannot compute it as NNAPI defines it.
        """
        CONVERTERS[self.call.view.type](self)
        for step in reversed(self._deferred):
            step()

    # ---- Arguments -----------------------------------------------------------------------------------------

    def type(self, name: str) -> int:
        """Return the operand type of an argument."""
        return self.call.operand(name).type

    def shape(self, name: str) -> Shape:
        """Return the shape of an argument or of an output."""
        return self.network.shapes[self.positions[name]]

    def is_constant(self, name: str) -> bool:
        """Return whether an argument is constant."""
        return self.positions[name] in self.network.constants

    def has_readers(self, name: str, count: int) -> bool:
        """Return whether so many operations read an argument, and it is not an output of the graph."""
        return self.lifetime(name) == OperandLifeTime.TEMPORARY_VARIABLE and self.use_count(name) == count

    def lifetime(self, name: str) -> int:
        """Return the lifetime of an argument."""
        return self.call.view.graph.operands[self.positions[name]].lifetime

    def use_count(self, name: str) -> int:
        """Return how many operations read an argument."""
        return self.call.view.graph.use_counts[self.positions[name]]

    def spec(self, name: str) -> TensorSpec:
        """Return the type in which an argument is computed: float32 for float16, otherwise its own."""
        spec = spec_of(self.call.operand(name))
        return FLOAT if spec.type == "FLOAT16" else spec

    def is_quantized(self, name: str) -> bool:
        """Return whether an argument is quantized."""
        return self.spec(name).quantization is not None

    # ---- Tensors ------------------------------------------------------------------------------------------

    def input(self, name: str) -> int:
        """Return the tensor of an argument, in the type in which it is computed.

        Raises:
            Unsupported: the argument is omitted.
        """
        if not self.call.has(name):
            raise Unsupported(f"{name} has no value")
        index, operand = self.positions[name], self.call.operand(name)
        half = operand.type == OperandType.TENSOR_FLOAT16
        return self.network.float_tensor(index, operand) if half else self.network.tensor(index, operand)

    def output(self, name: str = "output", like: TensorSpec | None = None) -> int:
        """Return the tensor to which an operator writes an output.

        If `like`, its type, differs from the operand's, its real values are converted to the output. If only the
        quantization differs, the stored values are copied: operations that move elements keep them.
        """
        index, operand = self.positions[name], self.call.operand(name)
        tensor = self.network.tensor(index, operand)
        own, spec = spec_of(operand), like or self.spec(name)
        if spec == own:
            return tensor
        result = self.writer.tensor(spec, self.shape(name))
        self._deferred.append(lambda: (self.copy if spec.type == own.type else self.convert_values)(result, tensor))
        return result

    def reshaped_output(self, shape: Shape, name: str = "output", like: TensorSpec | None = None) -> int:
        """Return a tensor of another shape whose elements, in order, become the output."""
        final = self.output(name, like)
        if self.writer.shapes[final] == tuple(shape):
            return final
        result = self.writer.tensor(self.writer.specs[final], shape)
        self._deferred.append(lambda: self.copy(result, final))
        return result

    def transposed_output(self, order: Sequence[int], name: str = "output", like: TensorSpec | None = None) -> int:
        """Return a tensor that becomes the output when its dimensions are permuted to `order`."""
        final = self.output(name, like)
        if list(order) == sorted(order):
            return final
        shape = [0] * len(order)
        for index, dimension in enumerate(order):
            shape[dimension] = self.writer.shapes[final][index]
        result = self.writer.tensor(self.writer.specs[final], shape)
        self._deferred.append(lambda: self._transpose(result, final, order))
        return result

    def like(self, tensor: int) -> int:
        """Add a tensor with the type and shape of another."""
        return self.writer.tensor(self.writer.specs[tensor], self.writer.shapes[tensor])

    def constant(self, value: object, spec: TensorSpec = INT32) -> int:
        """Add a constant tensor."""
        dtype = {"INT32": np.int32, "FLOAT32": np.float32, "UINT8": np.uint8, "INT8": np.int8}[spec.type]
        array = np.asarray(value, dtype)
        return self.writer.constant(spec, array.shape, array)

    # ---- Operators ----------------------------------------------------------------------------------------

    def emit(
        self, operator: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **fields: object
    ) -> None:
        """Add an operator; see `ModelWriter.operator`."""
        self.writer.operator(operator, inputs, outputs, options, fields)

    def apply(self, operator: str, inputs: Sequence[int], options: str = "", **fields: object) -> int:
        """Add an operator whose output is like its first input, and return the output."""
        out = self.like(inputs[0])
        self.emit(operator, inputs, [out], options, **fields)
        return out

    def reshape(self, tensor: int, shape: Shape) -> int:
        """Return the tensor with another shape."""
        if self.writer.shapes[tensor] == tuple(shape):
            return tensor
        out = self.writer.tensor(self.writer.specs[tensor], shape)
        self.copy(tensor, out)
        return out

    def transpose(self, tensor: int, order: Sequence[int]) -> int:
        """Return the tensor with its dimensions in another order."""
        if list(order) == sorted(order):
            return tensor
        shape = self.writer.shapes[tensor]
        out = self.writer.tensor(self.writer.specs[tensor], [shape[i] for i in order])
        self._transpose(tensor, out, order)
        return out

    def as_spec(self, tensor: int, spec: TensorSpec) -> int:
        """Return the tensor's real values in another type."""
        if self.writer.specs[tensor] == spec:
            return tensor
        out = self.writer.tensor(spec, self.writer.shapes[tensor])
        self.convert_values(tensor, out)
        return out

    def real_values(self, name: str) -> int:
        """Return an argument's real values in float32. Constants are converted here, as XNNPACK rounds differently."""
        if not self.is_constant(name) or not self.is_quantized(name) or self.call.channel_quant(name) is not None:
            return self.as_spec(self.input(name), FLOAT)
        operand = self.call.operand(name)
        return self.network.computed(self.positions[name], FLOAT, lambda stored: dequantize_array(stored, operand))

    def copy(self, source: int, target: int) -> None:
        """Copy bytes from one tensor to another, of any shape with as many elements."""
        shape = list(self.writer.shapes[target])
        self.emit("RESHAPE", [source, self.constant(shape)], [target], "ReshapeOptions", new_shape=shape)

    def convert_values(self, source: int, target: int) -> None:
        """Add the operator that converts real values between types."""
        if self.writer.specs[target].quantization is not None:
            self.emit("QUANTIZE", [source], [target])
        elif self.writer.specs[source].quantization is not None:
            self.emit("DEQUANTIZE", [source], [target])
        else:
            self.network.cast(source, target)

    def _transpose(self, source: int, target: int, order: Sequence[int]) -> None:
        self.emit("TRANSPOSE", [source, self.constant(list(order))], [target])

    # ---- Images -------------------------------------------------------------------------------------------

    def image_input(self, name: str = "input") -> int:
        """Return an image as [batches, height, width, channels], independently of its layout."""
        tensor = self.input(name)
        return self.transpose(tensor, (0, 2, 3, 1)) if self.call.flag("layout") else tensor

    def image_output(self, name: str = "output", like: TensorSpec | None = None) -> int:
        """Return the tensor for a result [batches, height, width, channels], independently of the output's layout."""
        return self.transposed_output((0, 3, 1, 2) if self.call.flag("layout") else (0, 1, 2, 3), name, like)

    def axis_to_last(self, tensor: int, axis: int) -> int:
        """Return the tensor with one dimension moved to the end."""
        return self.transpose(tensor, _to_last(len(self.writer.shapes[tensor]), axis))

    def output_from_last(self, axis: int, name: str = "output", like: TensorSpec | None = None) -> int:
        """Return the tensor for a result whose last dimension becomes dimension `axis` of the output."""
        order = np.argsort(_to_last(len(self.shape(name)), axis)).tolist()
        return self.transposed_output(order, name, like)


def _to_last(rank: int, axis: int) -> list[int]:
    return [i for i in range(rank) if i != axis] + [axis]


def same_operator(lower: Lowering) -> None:
    """Emit the operator of the same name, with the same inputs and without options."""
    lower.emit(lower.operation_name, [lower.input(name) for name in lower.argument_names], [lower.output()])


def with_type(spec: TensorSpec, type_: str) -> TensorSpec:
    """Return the same 8-bit values in UINT8 or INT8."""
    assert spec.quantization is not None
    if spec.type == type_:
        return spec
    shift = 128 if type_ == "UINT8" else -128
    points = tuple(point + shift for point in spec.quantization.zero_points)
    return TensorSpec(type_, replace(spec.quantization, zero_points=points))
