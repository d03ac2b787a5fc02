"""Parts of a .tflite file that LiteRT's interpreter tells: details of tensors, operators, constants and signatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
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

_OTHER_DTYPES: Mapping[str, type[np.generic]] = {
    "STRING": np.bytes_,
    "UINT4": np.uint8,
    **dict.fromkeys(("INT4", "INT2", "FLOAT8_E4M3FN", "FLOAT8_E5M2"), np.int8),
    **dict.fromkeys(("RESOURCE", "VARIANT"), np.object_),
}
"""Types that LiteRT gives for tensors whose elements numpy does not have."""
_BITS = {"INT4": 4, "UINT4": 4, "INT2": 2}
"""Numbers of bits of elements that share bytes in a file, the first one in the lowest bits."""


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
        """Return the type of a tensor's elements, as LiteRT's details have it.

        Raises:
            ValueError: numpy does not have it. The package ml_dtypes adds bfloat16, for LiteRT as well.
        """
        name = self._type_name(subgraph, index)
        try:
            return DTYPES.get(name) or np.dtype(_OTHER_DTYPES.get(name, name.lower()))
        except TypeError:
            raise ValueError(f"Invalid data-type for array: tensor {index} is {name}") from None

    def _type_name(self, subgraph: int, index: int) -> str:
        return TensorType(self.tensors(subgraph)[index]["type"]).name

    def memory_dtype(self, subgraph: int, index: int) -> np.dtype[Any]:
        """Return the type of an array with the value of a tensor. Strings are objects: bytes of any length."""
        dtype = self.dtype(subgraph, index)
        return np.dtype(object) if dtype.kind == "S" else dtype

    def zeros(self, subgraph: int, index: int, shape: Sequence[int]) -> AnyArray:
        """Return the value of a tensor before it is set."""
        dtype = self.memory_dtype(subgraph, index)
        return np.full(shape, b"", object) if dtype.hasobject else np.zeros(shape, dtype)

    @property
    def has_variables(self) -> bool:
        """True if subgraphs may share variables or tables."""
        tensors = (tensor for subgraph in range(len(self.subgraphs)) for tensor in self.tensors(subgraph))
        return any(tensor["type"] == TensorType.RESOURCE for tensor in tensors)

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
        stored = _elements(self.data[begin:end], self._type_name(subgraph, index), self.dtype(subgraph, index))
        shape = numbers(tensor["shape"])
        return stored if tensor["sparsity"] else stored[: prod(shape)].reshape(shape)

    def operators(self, subgraph: int) -> list[tuple[str, list[int], list[int]]]:
        """Return name, inputs and outputs of each operator of a subgraph."""
        names = [_operator_name(code) for code in self._model["operator_codes"] or []]
        return [
            (names[each["opcode_index"]], list(numbers(each["inputs"])), list(numbers(each["outputs"])))
            for each in self.subgraphs[subgraph]["operators"] or []
        ]


def as_bytes(strings: AnyArray) -> AnyArray:
    """Return an array of str or bytes as one of bytes.

    Raises:
        ValueError: an element is neither.
    """
    elements = [each.encode() if isinstance(each, str) else each for each in strings.reshape(-1).tolist()]
    if not all(isinstance(each, bytes) for each in elements):
        raise ValueError("PyBytes_AsStringAndSize() failed.")
    return np.fromiter(elements, object, len(elements)).reshape(strings.shape)


def _elements(data: Bytes, type_name: str, dtype: np.dtype[Any]) -> AnyArray:
    """Return the elements of a constant."""
    if type_name == "STRING":
        count, *offsets = data[: 4 * (int(data[:4].view("<i4")[0]) + 2)].view("<i4").tolist()
        return np.fromiter((data[begin:end].tobytes() for begin, end in pairwise(offsets)), object, count)
    if (bits := _BITS.get(type_name, 8)) == 8:
        return data.view(dtype)
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)  # the sign of an element goes to the highest bit
    elements: AnyArray = (data[:, None] << shifts).astype(np.uint8).view(dtype) >> (8 - bits)
    return elements.reshape(-1)


def _signature(fields: Fields) -> SignatureDef:
    inputs, outputs = (
        {each["name"]: each["tensor_index"] for each in sorted(fields[kind] or [], key=lambda each: each["name"])}
        for kind in ("inputs", "outputs")
    )
    return SignatureDef(fields["subgraph_index"], inputs, outputs)


def _operator_name(code: Fields) -> str:
    number = max(code["deprecated_builtin_code"], code["builtin_code"])
    return code["custom_code"] or "" if number == BuiltinOperator.CUSTOM else BuiltinOperator(number).name
