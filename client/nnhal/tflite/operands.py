"""Operands of the converted model: their NNAPI types and the locations of constants."""

from collections.abc import Hashable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import tflite

from nnhal.builder.constants import ALIGNMENT, MAX_COPIED_BYTES
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.reader import Tensor, TfliteGraph
from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    Memory,
    Operand,
    OperandLifeTime,
    OperandType,
    SymmPerChannelQuantParams,
)

_PLAIN = {
    tflite.TensorType.FLOAT32: OperandType.TENSOR_FLOAT32,
    tflite.TensorType.FLOAT16: OperandType.TENSOR_FLOAT16,
    tflite.TensorType.INT32: OperandType.TENSOR_INT32,
    tflite.TensorType.INT64: OperandType.TENSOR_INT32,
    tflite.TensorType.BOOL: OperandType.TENSOR_BOOL8,
}
_QUANTIZED = {
    tflite.TensorType.UINT8: (OperandType.TENSOR_QUANT8_ASYMM, 0, 255),
    tflite.TensorType.INT8: (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, -128, 127),
    tflite.TensorType.INT16: (OperandType.TENSOR_QUANT16_SYMM, 0, 0),
}
"""Operand type, lowest and highest zero point, by tensor type."""
_TYPE_NAMES = {value: name for name, value in vars(tflite.TensorType).items() if isinstance(value, int)}
_INT32_RANGE = np.iinfo(np.int32)


def tensor_operand(tensor: Tensor) -> Operand:
    """Return the type, dimensions and quantization of a tensor in NNAPI, with lifetime TEMPORARY_VARIABLE.

    Integers without quantization get scale 1 and zero point 0. int32 tensors get scale 0.

    Raises:
        TfliteError: NNAPI does not support such tensors.
    """
    if tensor.unsupported:
        raise TfliteError(f"{tensor} {tensor.unsupported}")
    if any(length <= 0 for length in tensor.shape):
        raise TfliteError(f"{tensor} has shape {list(tensor.shape)}; NNAPI has no empty tensors")
    dimensions = tensor.shape or (1,)
    if tensor.type in _PLAIN:
        return Operand(_PLAIN[tensor.type], dimensions)
    if tensor.type not in _QUANTIZED:
        raise TfliteError(f"{tensor} is {_TYPE_NAMES.get(tensor.type, tensor.type)}, a type that NNAPI lacks")
    if any(not scale > 0 for scale in tensor.scales):
        raise TfliteError(f"{tensor} has a scale that is not positive")
    return _per_channel(tensor) if len(tensor.scales) > 1 else _per_tensor(tensor, dimensions)


def _per_tensor(tensor: Tensor, dimensions: tuple[int, ...]) -> Operand:
    type_, low, high = _QUANTIZED[tensor.type]
    scale = tensor.scales[0] if tensor.scales else 1.0
    zero_point = tensor.zero_points[0] if tensor.scales and tensor.zero_points else 0
    if not low <= zero_point <= high:
        raise TfliteError(f"{tensor} has zero point {zero_point}; {type_.name} has {low} to {high}")
    return Operand(type_, dimensions, scale, zero_point)


def _per_channel(tensor: Tensor) -> Operand:
    if tensor.type != tflite.TensorType.INT8 or any(tensor.zero_points):
        raise TfliteError(f"{tensor} is quantized per channel, but is not int8 with zero points 0")
    dimension = tensor.quantized_dimension
    if not 0 <= dimension < len(tensor.shape) or tensor.shape[dimension] != len(tensor.scales):
        raise TfliteError(
            f"{tensor} has {len(tensor.scales)} scales along dimension {dimension} of {list(tensor.shape)}"
        )
    params = SymmPerChannelQuantParams(tensor.scales, dimension)
    return Operand(OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, tensor.shape, extra_params=params)


class Operands:
    """Operands in the order of their first use, and the values of constants."""

    def __init__(self, graph: TfliteGraph) -> None:
        self._graph = graph
        self._operands: list[Operand] = []
        self._numbers: dict[Hashable, int] = {}
        self._written = set(graph.inputs)
        self._values = bytearray()
        self._converted = bytearray()
        self._pools: list[str] = []

    def __getitem__(self, number: int) -> Operand:
        return self._operands[number]

    # ---- Tensors ----------------------------------------------------------------------------------------

    def read(self, index: int) -> int:
        """Return the operand of a tensor that an operation reads. The tensor must have a value."""
        tensor = self._graph.tensors[index]
        if tensor.data is None and index not in self._written:
            raise TfliteError(f"{tensor} {tensor.unsupported or 'has no value here: no earlier operator writes it'}")
        return self._number(index)

    def write(self, index: int) -> int:
        """Return the operand of a tensor that an operation writes."""
        tensor = self._graph.tensors[index]
        if tensor.data is not None or index in self._written:
            raise TfliteError(f"{tensor} is written, but has a value already")
        self._written.add(index)
        return self._number(index)

    def read_bias(self, index: int, scale: float) -> int:
        """Return the operand of a constant bias, whose scale is determined by input and filter in NNAPI."""
        tensor = self._graph.tensors[index]
        if tensor.data is None:
            raise TfliteError(f"{tensor} is a quantized bias that is not a constant")
        key = ("bias", index, scale)
        if key not in self._numbers:
            self._numbers[key] = self._constant(tensor, replace(tensor_operand(tensor), scale=scale))
        return self._numbers[key]

    def values(self, index: int) -> AnyArray:
        """Return the elements of a constant tensor, with its type and shape in the file, as a view of the file."""
        tensor = self._graph.tensors[index]
        if tensor.data is None:
            raise TfliteError(f"{tensor} is not a constant; NNAPI needs its value in the model")
        begin, end = tensor.data
        dtype = DTYPES[tensor_operand(tensor).type]
        if tensor.type == tflite.TensorType.INT64:
            dtype = np.dtype(np.int64)
        if end - begin != prod(tensor.shape) * dtype.itemsize:
            raise TfliteError(f"{tensor} has {end - begin} bytes for {dtype.name} of shape {list(tensor.shape)}")
        return np.ndarray(tensor.shape, dtype, self._graph.data, begin)

    def _number(self, index: int) -> int:
        key = ("tensor", index)
        if key not in self._numbers:
            self._numbers[key] = self._add_tensor(self._graph.tensors[index])
        return self._numbers[key]

    def _add_tensor(self, tensor: Tensor) -> int:
        operand = tensor_operand(tensor)
        if tensor.index in self._graph.inputs:
            return self.add(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT))
        if tensor.index in self._graph.outputs:
            return self.add(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
        return self.add(operand) if tensor.data is None else self._constant(tensor, operand)

    def _constant(self, tensor: Tensor, operand: Operand) -> int:
        """Add a constant of the file. Small and converted ones are copied, others remain in the file."""
        values = self.values(tensor.index)
        if tensor.type == tflite.TensorType.INT64:
            return self._add_copy(operand, _to_int32(tensor, values))
        if values.nbytes <= MAX_COPIED_BYTES:
            return self._add_copy(operand, values)
        assert tensor.data is not None
        location = DataLocation(self._pool("file"), tensor.data[0], values.nbytes)
        return self.add(replace(operand, lifetime=OperandLifeTime.CONSTANT_POOL, location=location))

    # ---- Operands that are not in the file ---------------------------------------------------------------

    def add(self, operand: Operand) -> int:
        """Add an operand and return its number."""
        self._operands.append(operand)
        return len(self._operands) - 1

    def constant(self, type_: int, values: AnyArray, scale: float = 0.0, zero_point: int = 0) -> int:
        """Add a constant tensor and return its number."""
        return self._add_copy(Operand(type_, values.shape, scale, zero_point), values.astype(DTYPES[type_]))

    def scalar(self, type_: OperandType, value: Any) -> int:
        """Return the number of a constant scalar. Equal scalars share one operand."""
        key = ("scalar", type_, value)
        if key not in self._numbers:
            self._numbers[key] = self._add_copy(Operand(type_), np.array(value, DTYPES[type_]))
        return self._numbers[key]

    def _add_copy(self, operand: Operand, values: AnyArray) -> int:
        small = values.nbytes <= MAX_COPIED_BYTES
        store = self._values if small else self._converted
        store.extend(bytes(-len(store) % ALIGNMENT))
        location = DataLocation(0 if small else self._pool("converted"), len(store), values.nbytes)
        store.extend(values.tobytes())
        lifetime = OperandLifeTime.CONSTANT_COPY if small else OperandLifeTime.CONSTANT_POOL
        return self.add(replace(operand, lifetime=lifetime, location=location))

    def _pool(self, name: str) -> int:
        if name not in self._pools:
            self._pools.append(name)
        return self._pools.index(name)

    # ---- Results ----------------------------------------------------------------------------------------

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands, in order."""
        return tuple(self._operands)

    @property
    def operand_values(self) -> bytes:
        """Values of the CONSTANT_COPY operands."""
        return bytes(self._values)

    @property
    def pools(self) -> tuple[Memory, ...]:
        """Pools of the CONSTANT_POOL operands: the file itself, and converted constants."""
        contents = {"file": Memory.of(self._graph.data), "converted": Memory.of(bytes(self._converted))}
        return tuple(contents[name] for name in self._pools)


def _to_int32(tensor: Tensor, values: AnyArray) -> AnyArray:
    if values.min() < _INT32_RANGE.min or values.max() > _INT32_RANGE.max:
        raise TfliteError(f"{tensor} is int64 with values that INT32 cannot hold")
    return values.astype(np.int32)
