"""TFLite graphs as dataclasses: tensors, operators and the values of constants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.tflite_schema.dtypes import DTYPES
from nnhal.types import AnyArray, Bytes

TENSOR_DTYPES: dict[int, np.dtype[Any]] = {TensorType[name]: dtype for name, dtype in DTYPES.items()}
"""Type of the elements by `TensorType`."""
_MAX_DEPTH = 8
"""Largest nesting of operators that run other subgraphs."""
TYPE_NAMES: dict[int, str] = {type_: type_.name for type_ in TensorType}


@dataclass(frozen=True, slots=True)
class SparseDimension:
    """A dimension of a sparse tensor: dense with `size` indexes, or compressed with segments and indexes."""

    size: int
    segments: tuple[int, ...] = ()
    indexes: tuple[int, ...] = ()
    is_compressed: bool = False


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Layout of the stored elements of a sparse tensor, as in the schema's SparsityParameters."""

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    dimensions: tuple[SparseDimension, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a subgraph.

    Attributes:
        type: `TensorType`.
        shape: its dimensions; some may be UNKNOWN.
        scales: () without quantization, one scale, or one per index of `quantized_dimension`.
        blocks: quantization in blocks, see `Quantization`.
        data: first byte and end, in the file, of a constant's little-endian elements; None for other tensors.
        unsupported: the reason why the tensor cannot be used, or "".
        is_variable: whether it keeps its value between executions.
        folded: value of a constant that is not in the file, with the tensor's shape.
        is_symbolic: whether -1 in the folded value stands for an unknown dimension.
    """

    index: int
    name: str
    type: int
    shape: tuple[int, ...]
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    quantized_dimension: int = 0
    blocks: tuple[int, ...] = ()
    data: tuple[int, int] | None = None
    unsupported: str = ""
    is_variable: bool = False
    sparsity: Sparsity | None = None
    folded: AnyArray | None = field(default=None, repr=False, compare=False)
    is_symbolic: bool = False

    def __str__(self) -> str:
        return f"tensor {self.index} ({self.name!r})"

    @property
    def is_constant(self) -> bool:
        """True if the value is known at import."""
        return self.data is not None or self.folded is not None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a subgraph.

    Attributes:
        index: position in the file; -1 for an operator that the import adds.
        code: `BuiltinOperator`.
        name: the name in the schema, followed by the custom name of a custom operator.
        inputs: indexes of tensors; -1 for an omitted optional tensor.
        options: fields of the options table, by their names in the schema ("stride_w").
        options_type: name of the options table, or "".
        intermediates: tensors that only carry the quantization of values inside the operator.
        unsupported: the reason why the operator cannot be used, or "".
    """

    index: int
    code: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    options_type: str = ""
    version: int = 1
    custom_options: bytes = b""
    intermediates: tuple[int, ...] = ()
    unsupported: str = ""

    def __str__(self) -> str:
        return f"operator {self.index} ({self.name})" if self.index >= 0 else f"added operator ({self.name})"

    @property
    def custom_name(self) -> str:
        """Name of a custom operator, or ""."""
        return self.name.removeprefix("CUSTOM ") if self.code == BuiltinOperator.CUSTOM else ""


@dataclass(frozen=True, slots=True)
class TfliteSignature:
    """A name of a subgraph, with names of its inputs and outputs by tensor."""

    key: str
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class TfliteGraph:
    """A subgraph, and the bytes of the file, which contain its constants.

    Attributes:
        graphs: all subgraphs of the file, by the indexes that operators have in their options.
        signatures: names of the subgraph for callers.
        depth: number of operators between the main subgraph and this one, each of which runs the next one.
    """

    data: Bytes
    tensors: Sequence[Tensor]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    graphs: Sequence["TfliteGraph"] = field(default=(), repr=False, compare=False)
    signatures: tuple[TfliteSignature, ...] = ()
    depth: int = 0

    def called(self, index: int, shapes: Sequence[tuple[int, ...]] | None = None) -> "TfliteGraph":
        """Return the subgraph that an operator runs, with these shapes of its inputs in place of those of the file.

        Raises:
            TfliteError: there is no such subgraph, it has another number of inputs, or calls are nested too deeply.
        """
        if not 0 < index < len(self.graphs) or self.depth >= _MAX_DEPTH:
            raise TfliteError(f"runs subgraph {index} of {len(self.graphs)} at depth {self.depth}")
        graph = replace(self.graphs[index], depth=self.depth + 1)
        if shapes is None:
            return graph
        if len(shapes) != len(graph.inputs):
            raise TfliteError(f"runs subgraph {index} with {len(shapes)} inputs; it has {len(graph.inputs)}")
        tensors = list(graph.tensors)
        for tensor, shape in zip(graph.inputs, shapes, strict=True):
            tensors[tensor] = replace(tensors[tensor], shape=shape)
        return replace(graph, tensors=tensors)

    def values(self, index: int) -> AnyArray:
        """Return the elements of a constant, with its type and shape in the file, if possible as a view of the file.

        Raises:
            TfliteError: the tensor is not a constant, has an unsupported type, or its length is wrong.
        """
        tensor = self.tensors[index]
        if tensor.is_symbolic:
            raise TfliteError(f"{tensor} depends on an unknown dimension")
        if tensor.folded is not None:
            return tensor.folded
        if tensor.data is None:
            raise TfliteError(f"{tensor} is not a constant; NNAPI needs its value in the model")
        stored = self.stored_values(tensor)
        if stored.size != prod(tensor.shape) or min(tensor.shape, default=0) < 0:
            raise TfliteError(
                f"{tensor} has {stored.nbytes} bytes for {stored.dtype.name} of shape {list(tensor.shape)}"
            )
        return stored.reshape(tensor.shape)

    def raw_values(self, tensor: Tensor) -> memoryview:
        """Return the bytes of a constant, which may have a type that numpy lacks.

        Raises:
            TfliteError: see `values`.
        """
        if tensor.type in TENSOR_DTYPES or tensor.data is None or tensor.folded is not None:
            return np.ascontiguousarray(self.values(tensor.index)).reshape(-1).view(np.uint8).data
        return self.data[slice(*tensor.data)].data

    def stored_values(self, tensor: Tensor) -> AnyArray:
        """Return the elements that the file has for a constant, of rank 1. A sparse constant has fewer than its shape.

        Raises:
            TfliteError: the type is unsupported, or the number of bytes is not a multiple of the element's.
        """
        assert tensor.data is not None
        begin, end = tensor.data
        dtype = TENSOR_DTYPES.get(tensor.type)
        if dtype is None:
            raise TfliteError(f"{tensor} is a constant of type {TYPE_NAMES.get(tensor.type, tensor.type)}")
        if tensor.unsupported or (end - begin) % dtype.itemsize:
            reason = tensor.unsupported or f"has {end - begin} bytes, which is not a multiple of {dtype.itemsize}"
            raise TfliteError(f"{tensor} {reason}")
        return np.ndarray(((end - begin) // dtype.itemsize,), dtype, self.data, begin)
