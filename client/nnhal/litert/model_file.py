"""Parts of a .tflite file that LiteRT's interpreter tells: details of tensors, operators, constants and signatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.tflite_schema.dtypes import DTYPES
from nnhal.tflite_schema.enumerations import DimensionType, SparseIndexVector
from nnhal.tflite_schema.packing import IDENTIFIER
from nnhal.tflite_schema.reader import Fields, FlatbufferReader, InvalidFlatbuffer, numbers
from nnhal.types import AnyArray, Bytes

Details = dict[str, Any]
"""Description of a tensor, with the keys of LiteRT."""

_OPAQUE_TYPES: Mapping[str, type[np.generic]] = {
    "STRING": np.bytes_,
    "INT4": np.int8,
    "RESOURCE": np.object_,
    "VARIANT": np.object_,
}
"""Types that LiteRT gives for tensors whose elements numpy does not have."""


@dataclass(frozen=True)
class SignatureDef:
    """Signature of a model: indexes of tensors of a subgraph by names of inputs and outputs."""

    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


class TfliteFile:
    """Contents of a file.

    Attributes:
        data: its bytes.
        subgraphs: fields of the subgraphs, with the names of the schema.
        signatures: signatures by key, in the order of the file.

    Raises:
        ValueError: the file is damaged.
    """

    def __init__(self, data: Bytes) -> None:
        self.data = data
        try:
            self._reader = FlatbufferReader(data, IDENTIFIER)
            self._model = self._reader.root("Model")
        except InvalidFlatbuffer as error:
            raise ValueError(f"The model is not a valid Flatbuffer buffer: {error}") from None
        self.subgraphs: list[Fields] = self._model["subgraphs"] or []
        if not self.subgraphs:
            raise ValueError("The model is not a valid Flatbuffer buffer: it has no subgraphs")
        self.signatures = {each["signature_key"]: _signature(each) for each in self._model["signature_defs"] or []}

    def tensors(self, subgraph: int) -> list[Fields]:
        """Return the fields of the tensors of a subgraph."""
        return self.subgraphs[subgraph]["tensors"] or []

    def dtype(self, subgraph: int, index: int) -> np.dtype[Any]:
        """Return the type of a tensor's elements, as LiteRT's details have it."""
        name = TensorType(self.tensors(subgraph)[index]["type"]).name
        return np.dtype(_OPAQUE_TYPES[name]) if name in _OPAQUE_TYPES else DTYPES[name]

    def details(self, subgraph: int, index: int, shape: Sequence[int]) -> Details:
        """Return the details of a tensor whose current shape is given."""
        tensor = self.tensors(subgraph)[index]
        quantization = tensor["quantization"] or {}
        scales, zero_points = (numbers(quantization.get(name)) for name in ("scale", "zero_point"))
        is_per_tensor = len(scales) == 1 and len(zero_points) == 1
        return {
            "name": tensor["name"] or "",
            "index": index,
            "shape": np.array(shape, np.int32),
            "shape_signature": np.array(numbers(tensor["shape_signature"]) or tuple(shape), np.int32),
            "dtype": self.dtype(subgraph, index).type,
            "quantization": (scales[0], zero_points[0]) if is_per_tensor else (0.0, 0),
            "quantization_parameters": {
                "scales": np.array(scales, np.float32),
                "zero_points": np.array(zero_points, np.int32),
                "quantized_dimension": quantization.get("quantized_dimension", 0),
                "block_size": 0,
            },
            "sparsity_parameters": self._sparsity(tensor["sparsity"]),
        }

    def _sparsity(self, fields: Fields | None) -> Details:
        if fields is None:
            return {}
        dimensions = [self._sparse_dimension(each) for each in fields["dim_metadata"] or []]
        vectors = {name: fields[name] for name in ("traversal_order", "block_map") if fields[name] is not None}
        return {name: np.array(vector, np.int32) for name, vector in vectors.items()} | {"dim_metadata": dimensions}

    def _sparse_dimension(self, fields: Fields) -> Details:
        if fields["format"] == DimensionType.DENSE:
            return {"format": 0, "dense_size": fields["dense_size"]}
        vectors = {}
        for name in ("array_segments", "array_indices"):
            table = SparseIndexVector(fields[f"{name}_type"]).name
            vectors[name] = np.array(self._reader.table(table, fields[name], name)["values"], np.int32)
        return {"format": 1, **vectors}

    def constant(self, subgraph: int, index: int) -> AnyArray | None:
        """Return the value of a constant, a view of the file; None for other tensors."""
        tensor = self.tensors(subgraph)[index]
        buffer = self._model["buffers"][tensor["buffer"]] if tensor["buffer"] else {}
        begin, end = buffer.get("data") or (buffer.get("offset", 0), buffer.get("offset", 0) + buffer.get("size", 0))
        if begin == end:
            return None
        dtype = self.dtype(subgraph, index)
        stored = self.data[begin:end].view(dtype)
        return stored if tensor["sparsity"] else stored.reshape(numbers(tensor["shape"]))

    def operators(self, subgraph: int) -> list[tuple[str, list[int], list[int]]]:
        """Return name, inputs and outputs of each operator of a subgraph."""
        names = [_operator_name(code) for code in self._model["operator_codes"] or []]
        return [
            (names[each["opcode_index"]], list(numbers(each["inputs"])), list(numbers(each["outputs"])))
            for each in self.subgraphs[subgraph]["operators"] or []
        ]


def _signature(fields: Fields) -> SignatureDef:
    inputs, outputs = (
        {each["name"]: each["tensor_index"] for each in sorted(fields[kind] or [], key=lambda each: each["name"])}
        for kind in ("inputs", "outputs")
    )
    return SignatureDef(fields["subgraph_index"], inputs, outputs)


def _operator_name(code: Fields) -> str:
    number = max(code["deprecated_builtin_code"], code["builtin_code"])
    return code["custom_code"] or "" if number == BuiltinOperator.CUSTOM else BuiltinOperator(number).name
