"""Writer of TFLite models: a flatbuffer followed by its constants, as bytes or in a memory file.

Tensors and operators are added one by one. A computed constant remains a function until the model is written, and its
value is freed immediately afterwards. So a model that is never written costs no memory.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

import numpy as np

from nnhal.alignment import align
from nnhal.tflite_schema.packing import (
    UNPLACED,
    Fields,
    PackedOperator,
    PackedSubgraph,
    PackedTensor,
    TensorSpec,
    pack,
)
from nnhal.types import AnyArray, Bytes
from nnhal_driver.backends.litert.engine import schema
from nnhal_driver.backends.litert.kernel_memory import KERNELS, KernelShapes
from nnhal_driver.backends.litert.page_sharing import PAGE, is_shareable, share
from nnhal_driver.backends.litert.submodel import ITEM_BITS
from nnhal_driver.mapped_memory import MAPPED_BYTES
from nnhal_driver.overlaps import address, flat_bytes, merge

_ACTIVATION = "fused_activation_function"
"""Option of operators that can apply an activation to their output."""
_READ_IN_PLACE = frozenset(("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM"))
"""Operators that read constants where they are. The engine packs those of others, such as the weights of layers."""
_OFFSET_SLOT = 6
"""Entry of `Buffer.offset` in the vtable of its table, in bytes."""

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""Seals of the file of a model, which several engines and their clients share."""

Value = AnyArray | Callable[[], AnyArray]
"""A constant: an array, or a function that computes it."""
Reserve = Callable[[int], object]
"""Reserves memory of the client, see `CompileOptions.reserve`."""


@dataclass(frozen=True, slots=True)
class ConstantLocation:
    """Bytes of a constant in a file: `size` bytes from `offset`. `type`: a name in TFLite's TensorType."""

    offset: int
    size: int
    type: str


class ModelFile:
    """A written model: bytes, or an unnamed memory file if the model has at least `MAPPED_BYTES`.

    Writing a file takes 0.6 ms for each MB, bytes a twentieth of that. But bytes need all computed constants at the
    same time, and malloc may keep the memory. Large constants then share the pages of the file if possible.

    Args:
        head: the flatbuffer.
        locations, values: the constants, in order; see `place_constants`.
        reserve: reserves the memory of the file.

    Attributes:
        source: the argument for interpreters: the bytes, or the path of the file.
    """

    def __init__(
        self,
        head: bytes,
        locations: Sequence[ConstantLocation],
        values: Sequence[Value],
        reserve: Reserve = lambda size: None,
    ) -> None:
        self._descriptor: int | None = None
        self.head_size = len(head)
        self.locations = tuple(locations)
        self.size = max((location.offset + location.size for location in locations), default=len(head))
        constants = list(_unwritten(len(head), locations, values))
        # constants that share pages with the file are in memory once, and count there
        shared = sum(location.size - skipped for location, value, skipped in constants if _is_shareable(value))
        self._reservation = reserve(self.size - shared)
        if self.size < MAPPED_BYTES and not any(map(_is_shareable, values)):
            self.source: bytes | str = _concatenate(head, constants)
        else:
            self._descriptor = os.memfd_create("nnhal-litert", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self.source = f"/proc/self/fd/{self._descriptor}"
            os.ftruncate(self._descriptor, self.size)
            _write(self._descriptor, head, 0)
            for location, value, skipped in constants:
                array = flat_bytes(_evaluate(value, location.size))[skipped:]
                _write(self._descriptor, array.data, location.offset + skipped)
                if _is_shareable(value):
                    share(array, self._descriptor, location.offset + skipped)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALS)

    def open(self) -> int:
        """Return a descriptor of a file with the model, for another process, which cannot change it."""
        if isinstance(self.source, bytes):
            descriptor = os.memfd_create("nnhal-litert", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            _write(descriptor, self.source, 0)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            return descriptor
        assert self._descriptor is not None
        return os.dup(self._descriptor)

    def contents(self) -> Bytes:
        """Return the whole model, read-only."""
        if isinstance(self.source, bytes):
            return np.frombuffer(self.source, np.uint8)
        assert self._descriptor is not None
        mapped = mmap.mmap(self._descriptor, self.size, mmap.MAP_PRIVATE, mmap.PROT_READ)
        return np.frombuffer(mapped, np.uint8)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class ModelWriter:
    """A TFLite model of one subgraph under construction.

    Attributes:
        constants: type, size in bytes and value of each constant.
        specs, shapes: those of each tensor.
        variables: numbers of the tensors that keep their values.
    """

    def __init__(self) -> None:
        self.constants: list[tuple[str, int, Value]] = []
        self.specs: list[TensorSpec] = []
        self.shapes: list[tuple[int, ...]] = []
        self.variables: set[int] = set()
        self._buffers: list[int] = []
        self._windows: dict[tuple[int, int, str], int] = {}
        self._operators: list[PackedOperator] = []
        self._read: set[int] = set()
        self._writers: dict[int, int] = {}

    def tensor(self, spec: TensorSpec, shape: Sequence[int], *, is_variable: bool = False) -> int:
        """Add a tensor and return its number. A variable keeps its value between executions, unless it is reset."""
        if is_variable:
            self.variables.add(len(self.specs))
        self.specs.append(spec)
        self.shapes.append(tuple(shape))
        self._buffers.append(0)
        return len(self.specs) - 1

    def constant(self, spec: TensorSpec, shape: Sequence[int], value: Value) -> int:
        """Add a constant tensor and return its number."""
        tensor = self.tensor(spec, shape)
        size = _byte_size(spec, shape)
        number = 0
        if isinstance(value, np.ndarray) and value.flags.c_contiguous:  # several operands may name the same bytes
            number = self._windows.setdefault((address(value), size, spec.type), len(self.constants) + 1)
        if not 0 < number <= len(self.constants):
            self.constants.append((spec.type, size, value))
            number = len(self.constants)
        self._buffers[tensor] = number
        return tensor

    def operator(self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: str, fields: Fields) -> None:
        """Add an operator; see `PackedOperator`."""
        self.add(PackedOperator(name, tuple(inputs), tuple(outputs), options, fields))

    def add(self, operator: PackedOperator) -> None:
        """Add an operator."""
        self._read.update(operator.inputs)
        self._writers.update(dict.fromkeys(operator.outputs, len(self._operators)))
        self._operators.append(operator)

    def fuse_activation(self, source: int, target: int, activation: int) -> bool:
        """Make the operator that writes `source` apply an activation and write `target` instead, if that is possible.

        No later operator reads `source`, and `target` has the same shape. The activation is an ActivationFunctionType.
        """
        operator = self._only_user(source)
        if operator is None or self.specs[source] != self.specs[target] or operator.fields.get(_ACTIVATION) != 0:
            return False
        fields = {**operator.fields, _ACTIVATION: activation}
        self._replace_writer(source, replace(operator, outputs=(target,), fields=fields))
        return True

    def fuse_requantization(self, source: int, target: int) -> bool:
        """Make the DEQUANTIZE that writes `source` a QUANTIZE that writes `target` instead, if that is possible.

        No later operator reads `source`, the tensor of real values, and `target` has the same shape.
        """
        operator = self._only_user(source)
        if operator is None or operator.name != "DEQUANTIZE":
            return False
        stored = operator.inputs[0]
        if any(self.specs[tensor].type not in ("INT8", "UINT8") for tensor in (stored, target)):
            return False
        self._replace_writer(source, PackedOperator("QUANTIZE", (stored,), (target,), "", {}))
        return True

    def _only_user(self, tensor: int) -> PackedOperator | None:
        """Return the operator that writes a tensor, unless an operator reads it."""
        index = self._writers.get(tensor)
        return None if index is None or tensor in self._read else self._operators[index]

    def _replace_writer(self, source: int, operator: PackedOperator) -> None:
        index = self._writers.pop(source)
        self._operators[index] = operator
        self._writers[operator.outputs[0]] = index

    @property
    def operators(self) -> list[str]:
        """Names of the operators added so far."""
        return [operator.custom_code or operator.name for operator in self._operators]

    def arena(self, outputs: Collection[int]) -> tuple[int, int]:
        """Return the most bytes of tensors, and the most tensors, that an execution needs at the same time.

        The engine reuses their memory, except that of the outputs.
        """
        kept = {*outputs, *self.variables}
        last_uses: dict[int, int] = {}
        for index, operator in enumerate(self._operators):
            last_uses.update(dict.fromkeys((*operator.inputs, *operator.outputs), index))
        live = highest = count = most = 0
        seen: set[int] = set()
        for index, operator in enumerate(self._operators):
            used = {i for i in (*operator.inputs, *operator.outputs) if i >= 0 and not self._buffers[i]}
            live += sum(map(self._tensor_bytes, used - seen))
            count += len(used - seen)
            seen |= used
            highest, most = max(highest, live), max(most, count)
            ended = [i for i in used if last_uses[i] == index and i not in kept]
            live -= sum(map(self._tensor_bytes, ended))
            count -= len(ended)
        return highest, most

    def packed_bytes(self) -> int:
        """Return the bytes of the constants that an interpreter may keep in a packed form, each on its own."""
        readers = (operator for operator in self._operators if operator.name not in _READ_IN_PLACE)
        packed = {self._buffers[i] for operator in readers for i in operator.inputs if i >= 0}
        return sum(self.constants[number - 1][1] for number in packed if number)

    def kernel_bytes(self) -> int:
        """Return the bytes that kernels of one interpreter need besides tensors."""
        return sum(KERNELS[each.name](self._kernel(each)) for each in self._operators if each.name in KERNELS)

    def _kernel(self, operator: PackedOperator) -> KernelShapes:
        inputs = [self.shapes[i] for i in operator.inputs]
        is_constant = all(self._buffers[i] for i in operator.inputs[1:2])
        output = operator.outputs[0]
        item_bytes = ITEM_BITS[self.specs[output].type] // 8
        return KernelShapes(inputs, self.shapes[output], operator.fields, item_bytes, is_constant)

    def _tensor_bytes(self, tensor: int) -> int:
        return _byte_size(self.specs[tensor], self.shapes[tensor])

    def subgraph(self, before: int, inputs: Sequence[int], outputs: Sequence[int]) -> PackedSubgraph:
        """Return the subgraph with these inputs and outputs, after `before` constants of earlier subgraphs."""
        parts = enumerate(zip(self.specs, self.shapes, self._buffers, strict=True))
        tensors = [
            PackedTensor(spec, shape, buffer and buffer + before, i in self.variables)
            for i, (spec, shape, buffer) in parts
        ]
        return PackedSubgraph(tensors, self._operators, inputs, outputs)


def _byte_size(spec: TensorSpec, shape: Sequence[int]) -> int:
    return -(-prod(shape) * ITEM_BITS[spec.type] // 8)


def write_subgraphs(parts: Sequence[tuple[ModelWriter, Sequence[int], Sequence[int]]], reserve: Reserve) -> ModelFile:
    """Return a model with one subgraph for each writer, with its inputs and outputs. `reserve` reserves its memory."""
    constants: list[tuple[str, int, Value]] = []
    subgraphs = []
    for writer, inputs, outputs in parts:
        subgraphs.append(writer.subgraph(len(constants), inputs, outputs))
        constants += writer.constants
    values = [value for _, _, value in constants]
    unplaced = [ConstantLocation(UNPLACED, size, type_) for type_, size, _ in constants]
    head = pack(subgraphs, [location.size for location in unplaced])
    return ModelFile(*place_constants(head, unplaced, values), values, reserve)


def place_constants(
    head: bytes, locations: Sequence[ConstantLocation], values: Sequence[Value]
) -> tuple[bytes, list[ConstantLocation]]:
    """Choose the offsets of the constants in the file of a model. Return the flatbuffer with them, and the locations.

    A constant that can share pages has the same offset within a page of the file as within a page of memory. Constants
    that overlap in memory overlap in the file.
    """
    stored = [i for i, value in enumerate(values) if isinstance(value, np.ndarray) and value.flags.c_contiguous]
    regions, places = merge([flat_bytes(cast(AnyArray, values[i])) for i in stored])
    place_of = dict(zip(stored, places, strict=True))
    offsets: dict[int, int] = {}
    placed: list[ConstantLocation] = []
    end = len(head)
    for i, location in enumerate(locations):
        number, inner = place_of.get(i, (-1 - i, 0))
        if number not in offsets:
            region = regions[number] if number >= 0 else None
            offsets[number] = align(end)
            if region is not None and is_shareable(region):
                offsets[number] = end + (address(region) - end) % PAGE
            end = offsets[number] + (location.size if region is None else region.size)
        placed.append(ConstantLocation(offsets[number] + inner, location.size, location.type))
    patched = bytearray(head)
    for position, location in zip(_offset_positions(head), placed, strict=True):
        struct.pack_into("<Q", patched, position, location.offset)
    return bytes(patched), placed


def _offset_positions(head: bytes) -> Iterator[int]:
    """Yield the position of each constant's `Buffer.offset` in a flatbuffer."""
    model = schema().Model.GetRootAs(head, 0)
    for i in range(1, model.BuffersLength()):
        table = model.Buffers(i)._tab
        yield table.Pos + table.Offset(_OFFSET_SLOT)


def _unwritten(
    end: int, locations: Sequence[ConstantLocation], values: Sequence[Value]
) -> Iterator[tuple[ConstantLocation, Value, int]]:
    """Yield the constants in the order of their offsets, with the bytes of each that an earlier one has written."""
    for location, value in sorted(zip(locations, values, strict=True), key=lambda pair: pair[0].offset):
        yield location, value, min(max(end - location.offset, 0), location.size)
        end = max(end, location.offset + location.size)


def _is_shareable(value: Value) -> bool:
    return isinstance(value, np.ndarray) and is_shareable(value)


def _concatenate(head: bytes, constants: Iterable[tuple[ConstantLocation, Value, int]]) -> bytes:
    """Return the whole model as bytes."""
    pieces: list[bytes | memoryview] = [head]
    end = len(head)
    for location, value, skipped in constants:
        start = location.offset + skipped
        pieces += [bytes(max(start - end, 0)), flat_bytes(_evaluate(value, location.size))[skipped:].data]
        end = max(end, location.offset + location.size)
    return b"".join(pieces)


def _evaluate(value: Value, size: int) -> AnyArray:
    """Return the array of a constant, row-major without gaps."""
    array = np.ascontiguousarray(value if isinstance(value, np.ndarray) else value())
    assert array.nbytes == size, f"a constant has {array.nbytes} bytes; expected {size}"
    return array


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    size = memoryview(data).nbytes
    done = os.pwrite(descriptor, data, offset)
    while done < size:  # one call writes at most 2 GiB
        done += os.pwrite(descriptor, memoryview(data).cast("B")[done:], offset + done)
