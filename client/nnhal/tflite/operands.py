"""Operands of the converted model: their NNAPI types and the locations of constants."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnhal import litert_extension
from nnhal.builder.constants import ALIGNMENT, MAX_COPIED_BYTES
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import TENSOR_DTYPES, TYPE_NAMES, Tensor, TfliteGraph
from nnhal.tflite.memory import reserve
from nnhal.tflite.wide_integers import wide_tensors
from nnhal.tflite_schema import TensorType
from nnhal.tflite_schema.shapes.rule import UNKNOWN, UNKNOWN_RANK, Shape
from nnhal.types import (
    DTYPES,
    AnyArray,
    Bytes,
    DataLocation,
    ExtensionNameAndPrefix,
    Memory,
    Operand,
    OperandLifeTime,
    OperandType,
    SymmPerChannelQuantParams,
)

EXTENSION_PREFIX = 1
"""Prefix of the LiteRT extension in imported models."""
_PLAIN: dict[int, OperandType] = {
    TensorType.FLOAT32: OperandType.TENSOR_FLOAT32,
    TensorType.FLOAT16: OperandType.TENSOR_FLOAT16,
    TensorType.INT32: OperandType.TENSOR_INT32,
    TensorType.INT64: OperandType.TENSOR_INT32,
    TensorType.BOOL: OperandType.TENSOR_BOOL8,
}
_QUANTIZED: dict[int, tuple[OperandType, int, int]] = {
    TensorType.UINT8: (OperandType.TENSOR_QUANT8_ASYMM, 0, 255),
    TensorType.INT8: (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, -128, 127),
    TensorType.INT16: (OperandType.TENSOR_QUANT16_SYMM, 0, 0),
}
"""Operand type, lowest and highest zero point, by tensor type."""
_EXTENSION_TYPES = {dtype: number for number, dtype in litert_extension.ELEMENT_TYPES.items()}
_INT32_RANGE = np.iinfo(np.int32)


def tensor_operand(tensor: Tensor, *, any_rank: bool = False) -> Operand:
    """Return the type, dimensions and quantization of a tensor in NNAPI, with lifetime TEMPORARY_VARIABLE.

    Integers without quantization get scale 1 and zero point 0. int32 tensors get scale 0. The rank must be known unless
    `any_rank`.

    Raises:
        TfliteError: NNAPI does not support such tensors.
    """
    if tensor.unsupported:
        raise TfliteError(f"{tensor} {tensor.unsupported}")
    if tensor.blocks:
        raise TfliteError(f"{tensor} is quantized in blocks, which NNAPI lacks")
    if tensor.shape == UNKNOWN_RANK and not any_rank:
        raise TfliteError(f"{tensor} has a rank that is only known when the model runs")
    if tensor.shape != UNKNOWN_RANK and (0 in tensor.shape or min(tensor.shape, default=0) < UNKNOWN):
        raise TfliteError(f"{tensor} has shape {list(tensor.shape)}; NNAPI has no empty tensors")
    dimensions = _dimensions(tensor.shape)
    if tensor.type in _PLAIN:
        return Operand(_PLAIN[tensor.type], dimensions)
    if tensor.type not in _QUANTIZED:
        raise TfliteError(f"{tensor} is {TYPE_NAMES.get(tensor.type, tensor.type)}, a type that NNAPI lacks")
    if any(not scale > 0 for scale in tensor.scales):
        raise TfliteError(f"{tensor} has a scale that is not positive")
    return _per_channel(tensor) if len(tensor.scales) > 1 else _per_tensor(tensor, dimensions)


def _dimensions(shape: Shape) -> tuple[int, ...]:
    """Return a shape as NNAPI has it: 0 for an unknown dimension, none if the rank is unknown, [1] for rank 0."""
    return () if shape == UNKNOWN_RANK else tuple(0 if n == UNKNOWN else n for n in shape) or (1,)


def _per_tensor(tensor: Tensor, dimensions: tuple[int, ...]) -> Operand:
    type_, low, high = _QUANTIZED[tensor.type]
    scale = tensor.scales[0] if tensor.scales else 1.0
    zero_point = tensor.zero_points[0] if tensor.scales and tensor.zero_points else 0
    if not low <= zero_point <= high:
        raise TfliteError(f"{tensor} has zero point {zero_point}; {type_.name} has {low} to {high}")
    return Operand(type_, dimensions, scale, zero_point)


def _per_channel(tensor: Tensor) -> Operand:
    if tensor.type != TensorType.INT8 or any(tensor.zero_points):
        raise TfliteError(f"{tensor} is quantized per channel, but is not int8 with zero points 0")
    dimension = tensor.quantized_dimension
    if not 0 <= dimension < len(tensor.shape) or tensor.shape[dimension] != len(tensor.scales):
        raise TfliteError(
            f"{tensor} has {len(tensor.scales)} scales along dimension {dimension} of {list(tensor.shape)}"
        )
    params = SymmPerChannelQuantParams(tensor.scales, dimension)
    return Operand(OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, tensor.shape, extra_params=params)


def boundary_operand(tensor: Tensor) -> Operand:
    """Return the operand of a tensor that only regions of the LiteRT extension read and write.

    Raises:
        TfliteError: the tensor is empty, or its type is unsupported.
    """
    if tensor.type != TensorType.INT64 and (len(tensor.scales) <= 1 or tensor.is_constant):
        try:
            return tensor_operand(tensor, any_rank=True)
        except TfliteError:
            pass  # NNAPI lacks the type, or forbids the quantization
    if 0 in tensor.shape:
        raise TfliteError(f"{tensor} has shape {list(tensor.shape)}; NNAPI has no empty tensors")
    number = _EXTENSION_TYPES.get(TENSOR_DTYPES.get(tensor.type, np.dtype(np.void)))
    if tensor.unsupported or number is None:
        reason = tensor.unsupported or f"is {TYPE_NAMES.get(tensor.type, tensor.type)}, an unsupported type"
        raise TfliteError(f"{tensor} {reason}")
    return Operand(EXTENSION_PREFIX << 16 | number, _dimensions(tensor.shape))


class ConstantStore:
    """Values of the constants of all subgraphs of a model: small copies, the file itself, and converted values."""

    def __init__(self, file: Bytes) -> None:
        self._file = file
        self._copies = bytearray()
        self._converted: list[tuple[int, AnyArray]] = []
        self._converted_bytes = 0
        self._pools: list[str] = []
        self.uses_extension = False

    def copy(self, values: AnyArray) -> tuple[OperandLifeTime, DataLocation]:
        """Store values that are not in the file, and return where they are."""
        if values.nbytes <= MAX_COPIED_BYTES:
            self._copies.extend(bytes(-len(self._copies) % ALIGNMENT))
            location = DataLocation(0, len(self._copies), values.nbytes)
            self._copies.extend(values.tobytes())
            return OperandLifeTime.CONSTANT_COPY, location
        reserve(values.nbytes)
        offset = -(-self._converted_bytes // ALIGNMENT) * ALIGNMENT
        self._converted.append((offset, values))
        self._converted_bytes = offset + values.nbytes
        return OperandLifeTime.CONSTANT_POOL, DataLocation(self._pool("converted"), offset, values.nbytes)

    def in_file(self, offset: int, size: int) -> tuple[OperandLifeTime, DataLocation]:
        """Return the location of bytes of the file."""
        return OperandLifeTime.CONSTANT_POOL, DataLocation(self._pool("file"), offset, size)

    def mark(self) -> tuple[int, int, int, int, bool]:
        """Return the present state, for `rollback`."""
        return (
            len(self._copies), len(self._converted), self._converted_bytes, len(self._pools), self.uses_extension
        )  # fmt: skip

    def rollback(self, mark: tuple[int, int, int, int, bool]) -> None:
        """Forget everything that was stored since `mark`."""
        copies, converted, self._converted_bytes, pools, self.uses_extension = mark
        del self._copies[copies:], self._converted[converted:], self._pools[pools:]

    def _pool(self, name: str) -> int:
        if name not in self._pools:
            self._pools.append(name)
        return self._pools.index(name)

    @property
    def operand_values(self) -> bytes:
        """Values of the CONSTANT_COPY operands."""
        return bytes(self._copies)

    @property
    def extensions(self) -> tuple[ExtensionNameAndPrefix, ...]:
        """Table of the extensions of the model."""
        name = ExtensionNameAndPrefix(litert_extension.NAME, EXTENSION_PREFIX)
        return (name,) if self.uses_extension else ()

    def pools(self) -> tuple[Memory, ...]:
        """Return the pools of the CONSTANT_POOL operands. The converted values are freed as they are copied."""
        return tuple(Memory.of(self._file if name == "file" else self._merge()) for name in self._pools)

    def _merge(self) -> AnyArray:
        pool = np.zeros(self._converted_bytes, np.uint8)
        for offset, values in self._converted:
            pool[offset : offset + values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._converted.clear()
        return pool


@dataclass(frozen=True, slots=True)
class Mark:
    """A state of `Operands`."""

    operands: int
    numbers: int
    written: int
    store: tuple[int, int, int, int, bool]


class Operands:
    """Operands of one subgraph in the order of their first use.

    Args:
        nnapi_tensors: tensors that NNAPI operations read or write, and that so cannot have a type of the extension.

    Attributes:
        wide: tensors of int64 that TENSOR_INT32 may not hold.
    """

    def __init__(self, graph: TfliteGraph, store: ConstantStore, nnapi_tensors: Collection[int] = ()) -> None:
        self._graph = graph
        self._store = store
        self._nnapi_tensors = nnapi_tensors
        self._operands: list[Operand] = []
        self._numbers: dict[Hashable, int] = {}
        self._written = dict.fromkeys(graph.inputs)
        self._inputs, self._outputs = set(graph.inputs), set(graph.outputs)
        self.wide = wide_tensors(graph)

    def __getitem__(self, number: int) -> Operand:
        return self._operands[number]

    def mark(self) -> Mark:
        """Return the present state, for `rollback`."""
        return Mark(len(self._operands), len(self._numbers), len(self._written), self._store.mark())

    def rollback(self, mark: Mark) -> None:
        """Forget everything that was added since `mark`."""
        del self._operands[mark.operands :]
        for table, size in ((self._numbers, mark.numbers), (self._written, mark.written)):
            while len(table) > size:
                table.popitem()
        self._store.rollback(mark.store)

    # ---- Tensors ----------------------------------------------------------------------------------------

    def read(self, index: int) -> int:
        """Return the operand of a tensor that an operation reads. The tensor must have a value."""
        self._require_value(index)
        return self._number(index)

    def write(self, index: int) -> int:
        """Return the operand of a tensor that an operation writes."""
        self.mark_written(index)
        return self._number(index)

    def mark_written(self, index: int) -> None:
        """Record that an operator writes a tensor, whose operand is not known yet."""
        tensor = self._graph.tensors[index]
        if tensor.is_constant or index in self._written:
            raise TfliteError(f"{tensor} is written, but has a value already")
        self._written[index] = None

    def read_boundary(self, index: int) -> int:
        """Return the operand of an input of a region. It has a type of the extension if NNAPI lacks the tensor's."""
        self._require_value(index)
        return self._boundary(index)

    def write_boundary(self, index: int) -> int:
        """Return the operand of an output of a region."""
        self.mark_written(index)
        return self._boundary(index)

    def is_int32(self, index: int) -> bool:
        """Return whether a tensor of int64 is a TENSOR_INT32. It must have an operand."""
        is_int64 = self._graph.tensors[index].type == TensorType.INT64
        return is_int64 and self._operands[self._numbers["tensor", index]].type == OperandType.TENSOR_INT32

    def require_values(self, indexes: Iterable[int]) -> None:
        """Raise TfliteError for a tensor that has no value yet. Variables always have one in a region."""
        for index in indexes:
            if not self._graph.tensors[index].is_variable:
                self._require_value(index)

    def _require_value(self, index: int) -> None:
        tensor = self._graph.tensors[index]
        if not tensor.is_constant and index not in self._written:
            reason = "is a variable, which keeps its value between executions" if tensor.is_variable else ""
            reason = tensor.unsupported or reason or "has no value here: no earlier operator writes it"
            raise TfliteError(f"{tensor} {reason}")

    def _boundary(self, index: int) -> int:
        return self._number(index, tensor_operand if index in self._nnapi_tensors else boundary_operand)

    def read_bias(self, index: int, scale: float) -> int:
        """Return the operand of a constant bias, whose scale is determined by input and filter in NNAPI."""
        tensor = self._graph.tensors[index]
        if not tensor.is_constant:
            raise TfliteError(f"{tensor} is a quantized bias that is not a constant")
        key = ("bias", index, scale)
        if key not in self._numbers:
            self._numbers[key] = self._constant(tensor, replace(tensor_operand(tensor), scale=scale))
        return self._numbers[key]

    def values(self, index: int) -> AnyArray:
        """Return the elements of a constant tensor, with its type and shape in the file, if possible as a view."""
        return self._graph.values(index)

    def _number(self, index: int, describe: Callable[[Tensor], Operand] = tensor_operand) -> int:
        key = ("tensor", index)
        if key not in self._numbers:
            tensor = self._graph.tensors[index]
            self._numbers[key] = self._add_tensor(tensor, describe(tensor))
        return self._numbers[key]

    def _add_tensor(self, tensor: Tensor, operand: Operand) -> int:
        if tensor.index in self._inputs:
            return self.add(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT))
        if tensor.index in self._outputs:
            return self.add(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
        return self._constant(tensor, operand) if tensor.is_constant else self.add(operand)

    def _constant(self, tensor: Tensor, operand: Operand) -> int:
        """Add a constant of the file. Small and converted ones are copied, others remain in the file."""
        values = self.values(tensor.index)
        if tensor.type == TensorType.INT64 and operand.type == OperandType.TENSOR_INT32:
            return self._add_copy(operand, _to_int32(tensor, values))
        if values.nbytes <= MAX_COPIED_BYTES or tensor.data is None or tensor.folded is not None:
            return self._add_copy(operand, values)
        lifetime, location = self._store.in_file(tensor.data[0], values.nbytes)
        return self.add(replace(operand, lifetime=lifetime, location=location))

    # ---- Operands that are not in the file ---------------------------------------------------------------

    def add(self, operand: Operand) -> int:
        """Add an operand and return its number."""
        self._operands.append(operand)
        return len(self._operands) - 1

    def constant(self, type_: int, values: AnyArray, scale: float = 0.0, zero_point: int = 0) -> int:
        """Add a constant tensor and return its number."""
        return self._add_copy(Operand(type_, values.shape, scale, zero_point), values.astype(DTYPES[type_], copy=False))

    def scalar(self, type_: OperandType, value: Any) -> int:
        """Return the number of a constant scalar. Equal scalars share one operand."""
        key = ("scalar", type_, value)
        if key not in self._numbers:
            self._numbers[key] = self._add_copy(Operand(type_), np.array(value, DTYPES[type_]))
        return self._numbers[key]

    def submodel(self, data: bytes) -> int:
        """Add the constant that holds the TFLite model of a region, and return its number."""
        self._store.uses_extension = True
        type_ = EXTENSION_PREFIX << 16 | litert_extension.SUBMODEL_BYTES
        return self._add_copy(Operand(type_, (len(data),)), np.frombuffer(data, np.uint8))

    def _add_copy(self, operand: Operand, values: AnyArray) -> int:
        lifetime, location = self._store.copy(values)
        return self.add(replace(operand, lifetime=lifetime, location=location))

    # ---- Results ----------------------------------------------------------------------------------------

    @property
    def all(self) -> Sequence[Operand]:
        """All operands, in order."""
        return self._operands


def _to_int32(tensor: Tensor, values: AnyArray) -> AnyArray:
    if values.min() < _INT32_RANGE.min or values.max() > _INT32_RANGE.max:
        raise TfliteError(f"{tensor} is int64 with values that INT32 cannot hold")
    return values.astype(np.int32)
