"""From NNAPI's operations to TFLite's operators: what the converters of `litert.operations` share.

    @converter(OperationType.FLOOR, limits=ELEMENTWISE)
    def floor(lower: Lowering) -> None:
        lower.emit("FLOOR", [lower.input("input")], [lower.output()])

A converter reads constants and shapes from `lower.call`, which has passed the shape rule, and adds operators. It raises
`Refused` where the engine's meaning is another one. TENSOR_FLOAT16 is computed in float32, as on CpuRef: inputs are
widened, outputs narrowed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from driver.backends.litert.known import CHECKED_BY_ENGINE, KnownCall, Refused, Shapes
from driver.backends.litert.limits import USUAL, Limits
from driver.backends.litert.writer import Quantization, Spec, Writer
from driver.operations.call import Shape
from driver.operations.quantization import dequantized
from nnhal.types import AnyArray, Operand, OperandType, SymmPerChannelQuantParams, type_name

Converter = Callable[["Lowering"], None]

CONVERTERS: dict[int, Converter] = {}
"""Every registered converter, by operation type."""
LIMITS: dict[int, Limits] = {}
"""How far the engine's kernels go, by operation type."""
FLOAT = Spec("FLOAT32")
INT32 = Spec("INT32")
BOOL = Spec("BOOL")

_TYPES = {
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
_OTHER_SIGN = {"INT8": "UINT8", "UINT8": "INT8"}


def converter(
    *types: int, limits: Limits = USUAL, checked_by_engine: str | None = None
) -> Callable[[Converter], Converter]:
    """Registers the converter of one or more operation types.

    Args:
        limits: of the engine's kernels.
        checked_by_engine: the argument of `known.CHECKED_BY_ENGINE`.
    """

    def register(function: Converter) -> Converter:
        for type_ in types:
            assert type_ not in CONVERTERS, f"operation type {type_} has two converters"
            CONVERTERS[type_], LIMITS[type_] = function, limits
            if checked_by_engine:
                CHECKED_BY_ENGINE[type_] = checked_by_engine
        return function

    return register


def spec_of(operand: Operand) -> Spec:
    """What the engine's tensor of an operand holds.

    Raises:
        Refused: the engine has no such type.
    """
    if operand.type not in _TYPES:
        raise Refused(f"{type_name(operand.type)} has no counterpart")
    name = _TYPES[OperandType(operand.type)]
    params = operand.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        return Spec(name, Quantization(params.scales, (0,) * len(params.scales), params.channel_dim))
    if operand.scale and name != "INT32":
        return Spec(name, Quantization((operand.scale,), (operand.zero_point,)))
    return Spec(name)


class Network:
    """Operations on their way into one TFLite model. `shapes` are those of all operands that they touch."""

    def __init__(self, constants: Mapping[int, AnyArray], shapes: Shapes) -> None:
        self.writer = Writer()
        self.constants = constants
        self.shapes = shapes
        self.tensors: dict[int, int] = {}
        self.widened: dict[int, int] = {}

    def tensor(self, index: int, operand: Operand) -> int:
        """The tensor of an operand, of the operand's own type."""
        if index not in self.tensors:
            spec = spec_of(operand)
            value = self.constants.get(index)
            if value is None:
                self.tensors[index] = self.writer.tensor(spec, self.shapes[index])
            else:
                self.tensors[index] = self.writer.constant(spec, value.shape, value)
        return self.tensors[index]

    def floats(self, index: int, operand: Operand) -> int:
        """The tensor of a TENSOR_FLOAT16, widened to float32."""
        if index not in self.widened:
            value = self.constants.get(index)
            if value is None:
                self.widened[index] = self.writer.tensor(FLOAT, self.shapes[index])
                self.cast(self.tensor(index, operand), self.widened[index])
            else:
                self.widened[index] = self.writer.constant(FLOAT, value.shape, lambda: value.astype(np.float32))
        return self.widened[index]

    def cast(self, source: int, target: int) -> None:
        """Adds a CAST."""
        self.writer.operator("CAST", [source], [target], "", None)


class Lowering:
    """One operation on its way into a network.

    Attributes:
        call: its constants and shapes.
        position: operand index behind each argument name.
    """

    def __init__(self, network: Network, call: KnownCall) -> None:
        self.call = call
        self.network = network
        self.writer = network.writer
        self.position = call.view.positions
        self._ends: list[Callable[[], None]] = []

    def convert(self) -> None:
        """Adds the operation's operators.

        Raises:
            Refused: the engine cannot do it with NNAPI's meaning.
        """
        CONVERTERS[self.call.view.type](self)
        for end in reversed(self._ends):
            end()

    # ---- What the operation says ---------------------------------------------------------------------------

    def type(self, name: str) -> int:
        """The operand type of an argument."""
        return self.call.operand(name).type

    def shape(self, name: str) -> Shape:
        """The shape of an argument or of an output."""
        return self.network.shapes[self.position[name]]

    def is_constant(self, name: str) -> bool:
        """Whether the value of an argument is known."""
        return self.position[name] in self.network.constants

    def spec(self, name: str) -> Spec:
        """What the argument's tensor holds when it is computed with: float32 for float16."""
        spec = spec_of(self.call.operand(name))
        return FLOAT if spec.type == "FLOAT16" else spec

    def is_quantized(self, name: str) -> bool:
        """Whether an argument holds quantised values."""
        return self.spec(name).quantization is not None

    # ---- Tensors ------------------------------------------------------------------------------------------

    def input(self, name: str) -> int:
        """The tensor of an argument, in the type that is computed with.

        Raises:
            Refused: the argument is left out.
        """
        if not self.call.has(name):
            raise Refused(f"{name} has no value")
        index, operand = self.position[name], self.call.operand(name)
        half = operand.type == OperandType.TENSOR_FLOAT16
        return self.network.floats(index, operand) if half else self.network.tensor(index, operand)

    def output(self, name: str = "output", like: Spec | None = None) -> int:
        """The tensor that an output is to be written to.

        Args:
            name: the output.
            like: what the tensor is to hold, if not what the operand says. The output gets the same real values; where
                only the quantisation differs, the same stored values: operations that move elements never change them.
        """
        index, operand = self.position[name], self.call.operand(name)
        tensor = self.network.tensor(index, operand)
        own, wanted = spec_of(operand), like or self.spec(name)
        if wanted == own:
            return tensor
        made = self.writer.tensor(wanted, self.shape(name))
        self.later(lambda: (self.copy if wanted.type == own.type else self.convert_values)(made, tensor))
        return made

    def reshaped_output(self, shape: Shape, name: str = "output", like: Spec | None = None) -> int:
        """A tensor of another shape whose elements, in order, become the output."""
        final = self.output(name, like)
        if self.writer.shapes[final] == tuple(shape):
            return final
        made = self.writer.tensor(self.writer.specs[final], shape)
        self.later(lambda: self._reshape(made, final))
        return made

    def transposed_output(self, order: Sequence[int], name: str = "output", like: Spec | None = None) -> int:
        """A tensor that becomes the output when its dimensions are put in `order`."""
        final = self.output(name, like)
        if list(order) == sorted(order):
            return final
        shape = [0] * len(order)
        for place, dimension in enumerate(order):
            shape[dimension] = self.writer.shapes[final][place]
        made = self.writer.tensor(self.writer.specs[final], shape)
        self.later(lambda: self._transpose(made, final, order))
        return made

    def later(self, step: Callable[[], None]) -> None:
        """Remembers a step that follows the operation's own; what was remembered last comes first."""
        self._ends.append(step)

    def temporary(self, spec: Spec, shape: Sequence[int]) -> int:
        """A tensor between two operators."""
        return self.writer.tensor(spec, shape)

    def like(self, tensor: int) -> int:
        """A tensor of the same kind as another."""
        return self.writer.tensor(self.writer.specs[tensor], self.writer.shapes[tensor])

    def constant(self, value: object, spec: Spec = INT32) -> int:
        """A constant."""
        dtype = {"INT32": np.int32, "FLOAT32": np.float32, "UINT8": np.uint8, "INT8": np.int8}[spec.type]
        array = np.asarray(value, dtype)
        return self.writer.constant(spec, array.shape, array)

    # ---- Operators ----------------------------------------------------------------------------------------

    def emit(
        self, operator: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **fields: object
    ) -> None:
        """Adds an operator; see `Writer.operator`."""
        self.writer.operator(operator, inputs, outputs, options, fields)

    def made(self, operator: str, inputs: Sequence[int], options: str = "", **fields: object) -> int:
        """Adds an operator whose output is like its first input; gives the output."""
        out = self.like(inputs[0])
        self.emit(operator, inputs, [out], options, **fields)
        return out

    def reshape(self, tensor: int, shape: Shape) -> int:
        """The tensor with another shape."""
        if self.writer.shapes[tensor] == tuple(shape):
            return tensor
        out = self.writer.tensor(self.writer.specs[tensor], shape)
        self._reshape(tensor, out)
        return out

    def transpose(self, tensor: int, order: Sequence[int]) -> int:
        """The tensor with its dimensions in another order."""
        if list(order) == sorted(order):
            return tensor
        shape = self.writer.shapes[tensor]
        out = self.writer.tensor(self.writer.specs[tensor], [shape[i] for i in order])
        self._transpose(tensor, out, order)
        return out

    def as_spec(self, tensor: int, spec: Spec) -> int:
        """The tensor's real values as another spec holds them."""
        if self.writer.specs[tensor] == spec:
            return tensor
        out = self.writer.tensor(spec, self.writer.shapes[tensor])
        self.convert_values(tensor, out)
        return out

    def real(self, name: str) -> int:
        """An argument's real values in float32. Constants are converted here: XNNPACK rounds theirs otherwise."""
        value = self.network.constants.get(self.position[name])
        if value is None or not self.is_quantized(name) or self.call.channel_quant(name) is not None:
            return self.as_spec(self.input(name), FLOAT)
        operand = self.call.operand(name)
        return self.writer.constant(FLOAT, value.shape, lambda: dequantized(value, operand))

    def copy(self, source: int, target: int) -> None:
        """Copies bytes from one tensor to another."""
        self._reshape(source, target)

    def convert_values(self, source: int, target: int) -> None:
        """Adds the operator that brings real values from one kind of tensor into another."""
        given, wanted = self.writer.specs[source], self.writer.specs[target]
        if wanted.quantization is not None:
            self.emit("QUANTIZE", [source], [target])
        elif given.quantization is not None:
            self.emit("DEQUANTIZE", [source], [target])
        else:
            self.network.cast(source, target)

    def _reshape(self, source: int, target: int) -> None:
        shape = list(self.writer.shapes[target])
        self.emit("RESHAPE", [source, self.constant(shape)], [target], "ReshapeOptions", newShape=shape)

    def _transpose(self, source: int, target: int, order: Sequence[int]) -> None:
        self.emit("TRANSPOSE", [source, self.constant(list(order))], [target])

    # ---- Images -------------------------------------------------------------------------------------------

    def image(self, name: str = "input") -> int:
        """An image as [batches, height, width, channels], whatever its layout."""
        tensor = self.input(name)
        return self.transpose(tensor, (0, 2, 3, 1)) if self.call.flag("layout") else tensor

    def image_output(self, name: str = "output", like: Spec | None = None) -> int:
        """The tensor for a result [batches, height, width, channels], whatever the layout of the output."""
        return self.transposed_output((0, 3, 1, 2) if self.call.flag("layout") else (0, 1, 2, 3), name, like)

    def last(self, tensor: int, axis: int) -> int:
        """The tensor with one dimension moved to the end."""
        return self.transpose(tensor, _to_last(len(self.writer.shapes[tensor]), axis))

    def output_from_last(self, axis: int, name: str = "output", like: Spec | None = None) -> int:
        """The tensor for a result whose last dimension is to become dimension `axis` of the output."""
        order = np.argsort(_to_last(len(self.shape(name)), axis)).tolist()
        return self.transposed_output(order, name, like)


def _to_last(rank: int, axis: int) -> list[int]:
    return [i for i in range(rank) if i != axis] + [axis]


def signed(spec: Spec) -> Spec:
    """The same values in INT8."""
    return flipped(spec) if spec.type == "UINT8" else spec


def unsigned(spec: Spec) -> Spec:
    """The same values in UINT8."""
    return flipped(spec) if spec.type == "INT8" else spec


def flipped(spec: Spec) -> Spec:
    """The same 8-bit values in the type of the other sign."""
    assert spec.quantization is not None
    shift = 128 if spec.type == "INT8" else -128
    quantization = spec.quantization
    points = tuple(point + shift for point in quantization.zero_points)
    return Spec(_OTHER_SIGN[spec.type], Quantization(quantization.scales, points, quantization.dimension))
