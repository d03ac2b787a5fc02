"""Writer of sub-models: a region of operators as a TFLite model of its own, for the LiteRT extension.

The constants are in the flatbuffer. Only this module and `reader` access flatbuffers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import flatbuffers
import numpy as np
import tflite

from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import TENSOR_DTYPES, TYPE_NAMES, UNKNOWN, Operator, Tensor, TfliteGraph
from nnhal.types import AnyArray

_IDENTIFIER = b"TFL3"
_VERSION = 3
_MAX_OLD_CODE = 127
"""Largest operator in the old field of the schema."""


_CUSTOM_OPERATORS = frozenset({"TFLite_Detection_PostProcess", "Convolution2DTransposeBias"})
"""Custom operators that LiteRT's Python package has."""
_KNOWN_OPERATORS = frozenset(value for value in vars(tflite.BuiltinOperator).values() if isinstance(value, int))
_OTHER_SUBGRAPHS = frozenset(
    getattr(tflite.BuiltinOperator, name)
    for name in ("IF", "WHILE", "CALL", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "DELEGATE")
)
"""Operators that refer to other subgraphs or to memory outside of the region."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """An input or output of a region.

    Attributes:
        tensor: its tensor.
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
    writer = _Writer(graph)
    input_tensors = [writer.input(boundary) for boundary in inputs]
    for operator in operators:
        writer.operator(operator)
    output_tensors = [writer.output(boundary) for boundary in outputs]
    return writer.finish(input_tensors, output_tensors)


def extension_obstacle(graph: TfliteGraph, operator: Operator) -> str:
    """Return why an operator cannot be part of a region, or ""."""
    if operator.unsupported:
        return operator.unsupported
    if operator.code == tflite.BuiltinOperator.CUSTOM and operator.custom_name not in _CUSTOM_OPERATORS:
        return f"custom operator {operator.custom_name!r} is not part of LiteRT"
    if operator.code in _OTHER_SUBGRAPHS or operator.code not in _KNOWN_OPERATORS:
        return "regions of the LiteRT extension cannot contain it"
    for index in (*operator.inputs, *operator.outputs):
        if index >= 0 and (obstacle := _tensor_obstacle(graph.tensors[index])):
            return f"{graph.tensors[index]} {obstacle}"
    return ""


def _tensor_obstacle(tensor: Tensor) -> str:
    if tensor.unsupported:
        return tensor.unsupported
    if tensor.is_symbolic:
        return "depends on an unknown dimension"
    if tensor.type not in TENSOR_DTYPES:
        return f"is {TYPE_NAMES.get(tensor.type, tensor.type)}, which regions of the LiteRT extension do not support"
    if 0 in tensor.shape:
        return f"has shape {list(tensor.shape)}; regions of the LiteRT extension have no empty tensors"
    return ""


class _Writer:
    def __init__(self, graph: TfliteGraph) -> None:
        self._graph = graph
        self._builder = flatbuffers.Builder(1024)
        self._numbers: dict[int, int] = {}
        self._repeated: dict[int, int] = {}  # weights whose scale is repeated for each channel
        self._tensors: list[int] = []
        self._buffers = [self._table("Buffer", {})]
        self._operators: list[int] = []
        self._codes: dict[tuple[int, int, str], int] = {}

    # ---- Contents ---------------------------------------------------------------------------------------

    def input(self, boundary: Boundary) -> int:
        """Add an input and return its tensor. An int64 tensor that is int32 outside is widened."""
        tensor = self._graph.tensors[boundary.tensor]
        if not boundary.as_int32:
            return self._number(boundary.tensor)
        narrow = self._add_tensor(tensor, tflite.TensorType.INT32)
        self._cast(narrow, self._number(boundary.tensor), tflite.TensorType.INT32, tflite.TensorType.INT64)
        return narrow

    def output(self, boundary: Boundary) -> int:
        """Return the tensor of an output. An int64 tensor that is int32 outside is narrowed."""
        if not boundary.as_int32:
            return self._number(boundary.tensor)
        narrow = self._add_tensor(self._graph.tensors[boundary.tensor], tflite.TensorType.INT32)
        self._cast(self._number(boundary.tensor), narrow, tflite.TensorType.INT64, tflite.TensorType.INT32)
        return narrow

    def operator(self, operator: Operator) -> None:
        """Add an operator with its tensors.

        Raises:
            TfliteError: it runs another subgraph, or has options of an unknown kind.
        """
        if operator.unsupported:
            raise TfliteError(operator.unsupported)
        key = (operator.code, operator.version, operator.custom_name)
        fields: dict[str, Any] = {
            "OpcodeIndex": self._codes.setdefault(key, len(self._codes)),
            "Inputs": self._int32([self._input_number(operator, i) for i in range(len(operator.inputs))]),
            "Outputs": self._int32([self._number(i) for i in operator.outputs]),
        }
        if operator.intermediates:
            fields["Intermediates"] = self._int32([self._number(i) for i in operator.intermediates])
        if operator.options_type:
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, operator.options_type)
            fields["BuiltinOptions"] = self._options(operator.options_type, operator.options)
        if operator.custom_options:
            fields["CustomOptions"] = self._builder.CreateByteVector(operator.custom_options)
        self._operators.append(self._table("Operator", fields))

    def _cast(self, source: int, target: int, from_type: int, to_type: int) -> None:
        code = self._codes.setdefault((tflite.BuiltinOperator.CAST, 1, ""), len(self._codes))
        options = self._options("CastOptions", {"InDataType": from_type, "OutDataType": to_type})
        fields = {
            "OpcodeIndex": code,
            "Inputs": self._int32([source]),
            "Outputs": self._int32([target]),
            "BuiltinOptionsType": tflite.BuiltinOptions.CastOptions,
            "BuiltinOptions": options,
        }
        self._operators.append(self._table("Operator", fields))

    def _input_number(self, operator: Operator, position: int) -> int:
        index = operator.inputs[position]
        if index < 0:
            return -1
        if (operator.code, position) == (tflite.BuiltinOperator.DEPTHWISE_CONV_2D, 1):
            return self._depthwise_weights(self._graph.tensors[operator.inputs[0]], self._graph.tensors[index])
        return self._number(index)

    def _depthwise_weights(self, image: Tensor, weights: Tensor) -> int:
        """Return the weights, with a scale for each channel if the image is float32: LiteRT reads as many."""
        is_hybrid = image.type == tflite.TensorType.FLOAT32 and weights.type == tflite.TensorType.INT8
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
        shape = [1 if length == UNKNOWN else length for length in tensor.shape]
        fields: dict[str, Any] = {"Shape": self._int32(shape), "Type": type_, "HasRank": True}
        if UNKNOWN in tensor.shape:
            fields["ShapeSignature"] = self._int32(tensor.shape)
        if tensor.is_constant:
            fields["Buffer"] = self._add_buffer(self._graph.values(tensor.index))
        if tensor.scales:
            zero_points = tensor.zero_points or (0,) * len(tensor.scales)
            quantization = {
                "Scale": self._builder.CreateNumpyVector(np.array(tensor.scales, np.float32)),
                "ZeroPoint": self._builder.CreateNumpyVector(np.array(zero_points, np.int64)),
                "QuantizedDimension": tensor.quantized_dimension,
            }
            fields["Quantization"] = self._table("QuantizationParameters", quantization)
        if tensor.is_variable:
            fields["IsVariable"] = True
        self._tensors.append(self._table("Tensor", fields))
        return len(self._tensors) - 1

    def _add_buffer(self, values: AnyArray) -> int:
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._builder.Prep(16, data.nbytes)  # the schema demands 16-byte alignment of constants
        self._buffers.append(self._table("Buffer", {"Data": self._builder.CreateNumpyVector(data)}))
        return len(self._buffers) - 1

    # ---- Flatbuffer -------------------------------------------------------------------------------------

    def finish(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return the model with these inputs and outputs."""
        graph = {
            "Tensors": self._offsets(self._tensors),
            "Inputs": self._int32(inputs),
            "Outputs": self._int32(outputs),
            "Operators": self._offsets(self._operators),
        }
        fields = {
            "Version": _VERSION,
            "OperatorCodes": self._offsets([self._code(*key) for key in self._codes]),
            "Subgraphs": self._offsets([self._table("SubGraph", graph)]),
            "Buffers": self._offsets(self._buffers),
        }
        self._builder.Finish(self._table("Model", fields), _IDENTIFIER)
        return bytes(self._builder.Output())

    def _code(self, code: int, version: int, custom_name: str) -> int:
        fields = {"DeprecatedBuiltinCode": min(code, _MAX_OLD_CODE), "Version": version, "BuiltinCode": code}
        if custom_name:
            fields["CustomCode"] = self._builder.CreateString(custom_name)
        return self._table("OperatorCode", fields)

    def _options(self, kind: str, options: Mapping[str, Any]) -> int:
        return self._table(kind, {name: self._option_value(value) for name, value in options.items()})

    def _option_value(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return self._builder.CreateString(value)
        if isinstance(value, tuple):
            dtype = np.float32 if any(isinstance(v, float) for v in value) else np.int32
            return self._builder.CreateNumpyVector(np.array(value, dtype))
        return value

    def _table(self, kind: str, fields: Mapping[str, Any]) -> int:
        """Write a table, whose vectors and tables are written already, with the schema's own functions."""
        start: Callable[..., None] = getattr(tflite, f"{kind}Start")
        start(self._builder)
        for name, value in fields.items():
            if value is not None:
                getattr(tflite, f"{kind}Add{name}")(self._builder, value)
        end: Callable[..., int] = partial(getattr(tflite, f"{kind}End"), self._builder)
        return end()

    def _int32(self, values: Iterable[int]) -> int:
        return int(self._builder.CreateNumpyVector(np.fromiter(values, np.int32)))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())
