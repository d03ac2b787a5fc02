"""Writer of sub-models: a region of operators as a TFLite model of its own, for the LiteRT extension.

The constants are in the flatbuffer. Subgraphs that the operators run follow the main one, as they are in the file.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import TYPE_NAMES, Operator, Tensor, TfliteGraph
from nnhal.tflite.sparse import densify_constants
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.tflite_schema.packing import PackedOperator, PackedSubgraph, PackedTensor, Quantization, TensorSpec, pack
from nnhal.tflite_schema.shapes.rule import UNKNOWN, UNKNOWN_RANK

CUSTOM_OPERATORS = frozenset(
    {
        "AudioSpectrogram",
        "Convolution2DTransposeBias",
        "MaxPoolingWithArgmax2D",
        "MaxUnpooling2D",
        "Mfcc",
        "NumericVerify",
        "TFLite_Detection_PostProcess",
    }
)
"""Custom operators that LiteRT's Python package has."""
_KNOWN_OPERATORS = frozenset(BuiltinOperator)
_OTHER_MEMORY = frozenset(
    BuiltinOperator[name] for name in ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "DELEGATE")
)
"""Operators that refer to memory outside of the region."""
_SUBGRAPHS = re.compile("subgraph(_index|_indices)?$")
"""Pattern of the names of options that are indexes of subgraphs."""


_OPAQUE_TYPES = frozenset({TensorType.STRING, TensorType.RESOURCE, TensorType.VARIANT})


@dataclass(frozen=True, slots=True)
class Boundary:
    """An input or output of a region.

    Attributes:
        as_int32: whether the int64 tensor is TENSOR_INT32 outside of the region.
    """

    tensor: int
    as_int32: bool = False


def write_submodel(
    graph: TfliteGraph, operators: Sequence[Operator], inputs: Sequence[Boundary], outputs: Sequence[Boundary]
) -> bytes:
    """Return a region as a TFLite model.

    Raises:
        TfliteError: an operator cannot be part of a region.
    """
    model, tensors = _Model(graph.graphs), list(graph.tensors)
    for index in (boundary.tensor for boundary in inputs):
        if tensors[index].shape == UNKNOWN_RANK:  # an operand of rank 0 has shape [1], too
            tensors[index] = replace(tensors[index], shape=(UNKNOWN,))
    writer = _Writer(replace(graph, tensors=tensors), model)
    input_tensors = [writer.input(boundary) for boundary in inputs]
    for operator in operators:
        writer.operator(operator)
    output_tensors = [writer.output(boundary) for boundary in outputs]
    return model.pack(writer.finish(input_tensors, output_tensors))


def extension_obstacle(graph: TfliteGraph, operator: Operator) -> str:
    """Return why an operator cannot be part of a region, or ""."""
    if operator.unsupported:
        return operator.unsupported
    if operator.code == BuiltinOperator.CUSTOM and operator.custom_name not in CUSTOM_OPERATORS:
        return f"custom operator {operator.custom_name!r} is not part of LiteRT"
    if operator.code in _OTHER_MEMORY or operator.code not in _KNOWN_OPERATORS:
        return "regions of the LiteRT extension cannot contain it"
    for index in (*operator.inputs, *operator.outputs):
        if index >= 0 and (obstacle := _tensor_obstacle(graph.tensors[index])):
            return f"{graph.tensors[index]} {obstacle}"
    try:
        called = [graph.called(index) for index in _subgraphs(operator)]
    except TfliteError as error:
        return str(error)
    obstacles = ((inner, extension_obstacle(each, inner)) for each in called for inner in each.operators)
    return next((f"{inner}: {obstacle}" for inner, obstacle in obstacles if obstacle), "")


def _subgraphs(operator: Operator) -> list[int]:
    """Return the indexes of the subgraphs that an operator runs."""
    values = (value for name, value in operator.options.items() if _SUBGRAPHS.search(name))
    return [index for value in values for index in ([value] if isinstance(value, int) else value or ())]


def _tensor_obstacle(tensor: Tensor) -> str:
    if tensor.unsupported:
        return tensor.unsupported
    if tensor.is_symbolic:
        return "depends on an unknown dimension"
    if tensor.type not in TYPE_NAMES or tensor.type in _OPAQUE_TYPES:
        return f"is {TYPE_NAMES.get(tensor.type, tensor.type)}, which no device has"
    return ""


class _Model:
    """Sub-model under construction: its constants, and the subgraphs that its operators run."""

    def __init__(self, graphs: Sequence[TfliteGraph]) -> None:
        self.constants: list[memoryview] = []
        self._graphs = graphs
        self._numbers: dict[int, int] = {}

    def subgraph(self, index: int) -> int:
        """Return the number of a subgraph of the file in the sub-model."""
        return self._numbers.setdefault(index, len(self._numbers) + 1)

    def pack(self, main: PackedSubgraph) -> bytes:
        """Return the model."""
        subgraphs = [main]
        while len(subgraphs) <= len(self._numbers):  # each one may run further ones
            graph = densify_constants(self._graphs[list(self._numbers)[len(subgraphs) - 1]])
            writer = _Writer(graph, self)
            inputs = [writer.input(Boundary(index)) for index in graph.inputs]
            for operator in graph.operators:
                writer.operator(operator)
            subgraphs.append(writer.finish(inputs, [writer.output(Boundary(index)) for index in graph.outputs]))
        return pack(subgraphs, self.constants)


class _Writer:
    def __init__(self, graph: TfliteGraph, model: _Model) -> None:
        self._graph = graph
        self._model = model
        self._numbers: dict[int, int] = {}
        self._repeated: dict[int, int] = {}  # weights whose scale is repeated for each channel
        self._tensors: list[PackedTensor] = []
        self._operators: list[PackedOperator] = []

    def input(self, boundary: Boundary) -> int:
        """Add an input and return its tensor. An int64 tensor that is int32 outside is widened."""
        if not boundary.as_int32:
            return self._number(boundary.tensor)
        narrow = self._add_tensor(self._graph.tensors[boundary.tensor], TensorType.INT32)
        self._cast(narrow, self._number(boundary.tensor), TensorType.INT32, TensorType.INT64)
        return narrow

    def output(self, boundary: Boundary) -> int:
        """Return the tensor of an output. An int64 tensor that is int32 outside is narrowed."""
        if not boundary.as_int32:
            return self._number(boundary.tensor)
        narrow = self._add_tensor(self._graph.tensors[boundary.tensor], TensorType.INT32)
        self._cast(self._number(boundary.tensor), narrow, TensorType.INT64, TensorType.INT32)
        return narrow

    def operator(self, operator: Operator) -> None:
        """Add an operator with its tensors.

        Raises:
            TfliteError: it runs another subgraph, or has options of an unknown kind.
        """
        if operator.unsupported:
            raise TfliteError(operator.unsupported)
        self._operators.append(
            PackedOperator(
                BuiltinOperator(operator.code).name,
                tuple(self._input_number(operator, i) for i in range(len(operator.inputs))),
                tuple(map(self._number, operator.outputs)),
                operator.options_type,
                {name: self._option(name, value) for name, value in operator.options.items()},
                tuple(map(self._number, operator.intermediates)),
                operator.custom_name,
                operator.custom_options,
                operator.version,
            )
        )

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> PackedSubgraph:
        """Return the subgraph with these inputs and outputs."""
        return PackedSubgraph(self._tensors, self._operators, inputs, outputs)

    def _option(self, name: str, value: Any) -> Any:
        if not _SUBGRAPHS.search(name) or value is None:
            return value
        return self._model.subgraph(value) if isinstance(value, int) else tuple(map(self._model.subgraph, value))

    def _cast(self, source: int, target: int, from_type: TensorType, to_type: TensorType) -> None:
        options = {"in_data_type": from_type, "out_data_type": to_type}
        self._operators.append(PackedOperator("CAST", (source,), (target,), "CastOptions", options))

    def _input_number(self, operator: Operator, position: int) -> int:
        index = operator.inputs[position]
        if index < 0:
            return -1
        if (operator.code, position) == (BuiltinOperator.DEPTHWISE_CONV_2D, 1):
            return self._depthwise_weights(self._graph.tensors[operator.inputs[0]], self._graph.tensors[index])
        return self._number(index)

    def _depthwise_weights(self, image: Tensor, weights: Tensor) -> int:
        """Return the weights, with a scale for each channel if the image is float32: LiteRT reads as many."""
        is_hybrid = image.type == TensorType.FLOAT32 and weights.type == TensorType.INT8
        if not is_hybrid or not weights.is_constant or len(weights.scales) != 1:
            return self._number(weights.index)
        channels = weights.shape[-1]
        repeated = replace(
            weights,
            scales=weights.scales * channels,
            zero_points=weights.zero_points * channels,
            quantized_dimension=len(weights.shape) - 1,
        )
        if weights.index not in self._repeated:
            self._repeated[weights.index] = self._add_tensor(repeated, repeated.type)
        return self._repeated[weights.index]

    def _number(self, index: int) -> int:
        if index not in self._numbers:
            tensor = self._graph.tensors[index]
            self._numbers[index] = self._add_tensor(tensor, tensor.type)
        return self._numbers[index]

    def _add_tensor(self, tensor: Tensor, type_: int) -> int:
        if tensor.unsupported:
            raise TfliteError(f"{tensor} {tensor.unsupported}")
        zero_points = tensor.zero_points or (0,) * len(tensor.scales)
        blocks = tuple(self._number(index) if index >= 0 else -1 for index in tensor.blocks[:2]) + tensor.blocks[2:]
        quantization = Quantization(tensor.scales, zero_points, tensor.quantized_dimension, blocks)
        is_quantized = bool(tensor.scales or tensor.blocks)
        if tensor.is_constant:
            self._model.constants.append(self._graph.raw_values(tensor))
        buffer = len(self._model.constants) if tensor.is_constant else 0
        spec = TensorSpec(TensorType(type_).name, quantization if is_quantized else None)
        shape = () if tensor.shape == UNKNOWN_RANK else tensor.shape  # LiteRT sets the rank
        self._tensors.append(PackedTensor(spec, shape, buffer, tensor.is_variable))
        return len(self._tensors) - 1
