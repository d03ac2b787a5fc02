"""Writes TFLite models: a flatbuffer with its constants behind it, as bytes or in a memory file that interpreters map.

Tensors and operators are added one by one; constants that have to be made are only kept as functions until the model is
written, and let go one by one as they are, so that a model that is never written costs nothing.
"""

import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from driver.backends.litert.engine import schema
from driver.backends.litert.flatbuffer import PLACE, Packer, Table
from driver.backends.litert.pages import PAGE, address, is_shareable, share
from nnhal.types import AnyArray, Bytes

_ALIGNMENT = 64
"""Bytes at which constants begin: as much as the widest vector instructions want."""
IN_MEMORY_BYTES = 32 * 2**20
"""Bytes from which a model is a file. Filling one takes 0.6 ms for each MB, memory a twentieth of that; but constants
that are made on the way are all there at once, and malloc may keep what is let go."""
_ITEM_BYTES = {"BOOL": 1, "INT8": 1, "UINT8": 1, "INT16": 2, "UINT16": 2, "FLOAT16": 2, "INT32": 4, "FLOAT32": 4}

Fields = Mapping[str, object] | None
Value = AnyArray | Callable[[], AnyArray]
"""A constant: an array that is there anyway, or what makes one."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a tensor is quantised: one scale, or one for each index of dimension `dimension`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    dimension: int = 0


@dataclass(frozen=True, slots=True)
class Spec:
    """What a tensor holds. `type`: a name in TFLite's TensorType."""

    type: str
    quantization: Quantization | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a constant lies in a file: `size` bytes from `offset`. `type`: a name in TFLite's TensorType."""

    offset: int
    size: int
    type: str


class ModelFile:
    """A written model: bytes, or a memory file without a name, which lives as long as this object.

    The memory of large constants that nobody may write to shares the file's pages from then on.

    Args:
        head: the flatbuffer.
        places: of the constants behind it, in order.
        values: the constants.

    Attributes:
        source: what interpreters are made of: the bytes, or the path of the file.
    """

    def __init__(self, head: bytes, places: Sequence[Place], values: Sequence[Value]) -> None:
        self.head_size = len(head)
        self.places = tuple(places)
        self.size = max((place.offset + place.size for place in places), default=len(head))
        self._descriptor: int | None = None
        if self.size < IN_MEMORY_BYTES and not any(isinstance(v, np.ndarray) and is_shareable(v) for v in values):
            self.source: bytes | str = _joined(head, places, values)
        else:
            self._descriptor = os.memfd_create("nnhal-litert", os.MFD_CLOEXEC)
            self.source = f"/proc/self/fd/{self._descriptor}"
            _fill(self._descriptor, self.size, head, places, values)

    def contents(self) -> Bytes:
        """What is in it. Not to be written."""
        if isinstance(self.source, bytes):
            return np.frombuffer(self.source, np.uint8)
        assert self._descriptor is not None
        return np.frombuffer(mmap.mmap(self._descriptor, self.size, prot=mmap.PROT_READ), np.uint8)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator: the number of its code, its tensors, and the options table with its fields."""

    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str
    fields: tuple[tuple[str, object], ...]


class _Graph(NamedTuple):
    """Places of what is packed first."""

    codes: int
    subgraphs: int


# Tables of the TFLite schema: slots and formats of the fields that are set.
_MODEL = Table((0, "L"), (1, PLACE), (2, PLACE), (4, PLACE))
_CODE = Table((0, "b"), (2, "i"), (3, "i"))
_SUBGRAPH = Table((0, PLACE), (1, PLACE), (2, PLACE), (3, PLACE))
_TENSOR = Table((0, PLACE), (1, "b"), (2, "L"), (8, "?"))
_QUANTIZED_TENSOR = Table((0, PLACE), (1, "b"), (2, "L"), (8, "?"), (4, PLACE))
_QUANTIZATION = Table((2, PLACE), (3, PLACE), (6, "i"))
_OPERATOR = Table((0, "L"), (1, PLACE), (2, PLACE))
_OPERATOR_WITH_OPTIONS = Table((0, "L"), (1, PLACE), (2, PLACE), (3, "B"), (4, PLACE))
_BUFFER = Table((1, "Q"), (2, "Q"))
_SCHEMA_VERSION = 3


class Writer:
    """A TFLite model of one subgraph in the making."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._constants: list[tuple[str, int, Value]] = []
        self.specs: list[Spec] = []
        self.shapes: list[tuple[int, ...]] = []
        self._buffers: list[int] = []
        self._operators: list[_Operator] = []

    def tensor(self, spec: Spec, shape: Sequence[int]) -> int:
        """Adds a tensor; gives its number."""
        self.specs.append(spec)
        self.shapes.append(tuple(shape))
        self._buffers.append(0)
        return len(self.specs) - 1

    def constant(self, spec: Spec, shape: Sequence[int], value: Value) -> int:
        """Adds a tensor with a value."""
        made = self.tensor(spec, shape)
        self._constants.append((spec.type, prod(shape) * _ITEM_BYTES[spec.type], value))
        self._buffers[made] = len(self._constants)
        return made

    def is_constant(self, tensor: int) -> bool:
        """Whether a tensor has a value in the model."""
        return self._buffers[tensor] > 0

    def operator(self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: str, fields: Fields) -> None:
        """Adds an operator.

        Args:
            name: in BuiltinOperator.
            inputs, outputs: numbers of tensors; -1 is one that is left out.
            options: name of the options table, or "" for none.
            fields: the table's fields, as the schema's object API calls them.
        """
        code = self._codes.setdefault(name, len(self._codes))
        given = tuple((field, tuple(v) if isinstance(v, list) else v) for field, v in (fields or {}).items())
        self._operators.append(_Operator(code, tuple(inputs), tuple(outputs), options, given))

    @property
    def operators(self) -> list[str]:
        """Names of the operators added so far."""
        names = list(self._codes)
        return [names[operator.code] for operator in self._operators]

    def write(self, inputs: Sequence[int], outputs: Sequence[int]) -> ModelFile:
        """The model with these inputs and outputs, written to a memory file."""
        packer = Packer()
        graph = self._pack(packer, inputs, outputs)
        # how long it is does not depend on where the constants lie, which does depend on how long it is
        room = len(self._finish(packer.copy(), graph, self._places(0)))
        places = self._places(room)
        return ModelFile(self._finish(packer, graph, places), places, [value for _, _, value in self._constants])

    def _places(self, head: int) -> list[Place]:
        """Where each constant lies. One that shares pages lies in its page as it does in its own memory."""
        places, end = [], head
        for type_, size, value in self._constants:
            step, rest = _ALIGNMENT, 0
            if isinstance(value, np.ndarray) and is_shareable(value):
                step, rest = PAGE, address(value) % PAGE
            places.append(Place(end + (rest - end) % step, size, type_))
            end = places[-1].offset + size
        return places

    def _pack(self, packer: Packer, inputs: Sequence[int], outputs: Sequence[int]) -> _Graph:
        """Adds all but the buffers."""
        codes = [packer.table(_CODE, min(number, 127), 1, number) for number in map(_operator_code, self._codes)]
        tensors = [_pack_tensor(packer, *tensor) for tensor in zip(self.specs, self.shapes, self._buffers, strict=True)]
        operators = [_pack_operator(packer, operator) for operator in self._operators]
        graph = packer.table(
            _SUBGRAPH,
            packer.children(tensors),
            packer.vector("i", inputs),
            packer.vector("i", outputs),
            packer.children(operators),
        )
        return _Graph(packer.children(codes), packer.children([graph]))

    def _finish(self, packer: Packer, graph: _Graph, places: Sequence[Place]) -> bytes:
        """Adds the buffers; gives the flatbuffer."""
        nothing = packer.table(_BUFFER, 0, 0)
        buffers = [nothing, *(packer.table(_BUFFER, place.offset, place.size) for place in places)]
        children = (graph.codes, graph.subgraphs, packer.children(buffers))
        return packer.finish(packer.table(_MODEL, _SCHEMA_VERSION, *children), b"TFL3")


def _pack_tensor(packer: Packer, spec: Spec, shape: Sequence[int], buffer: int) -> int:
    held = packer.vector("i", shape), getattr(schema().TensorType, spec.type), buffer, True
    quantization = spec.quantization
    if quantization is None:
        return packer.table(_TENSOR, *held)
    scales, points = packer.vector("f", quantization.scales), packer.vector("q", quantization.zero_points)
    packed = packer.table(_QUANTIZATION, scales, points, quantization.dimension)
    return packer.table(_QUANTIZED_TENSOR, *held, packed)


def _pack_operator(packer: Packer, operator: _Operator) -> int:
    held = operator.code, packer.vector("i", operator.inputs), packer.vector("i", operator.outputs)
    if not operator.options:
        return packer.table(_OPERATOR, *held)
    type_ = getattr(schema().BuiltinOptions, operator.options)
    options = packer.finished(_packed_options(operator.options, operator.fields))
    return packer.table(_OPERATOR_WITH_OPTIONS, *held, type_, options)


@lru_cache(256)
def _packed_options(name: str, fields: tuple[tuple[str, object], ...]) -> bytes:
    """An options table as a flatbuffer of its own: there are too many kinds of them to spell out."""
    import flatbuffers  # noqa: PLC0415 - comes with the engine

    options = getattr(schema(), f"{name}T")()
    for field, value in fields:
        assert hasattr(options, field), f"{name} has no {field}"
        setattr(options, field, value)
    builder = flatbuffers.Builder(64)
    builder.Finish(options.Pack(builder))
    return bytes(builder.Output())


def _operator_code(name: str) -> int:
    number: int = getattr(schema().BuiltinOperator, name)
    return number


def _joined(head: bytes, places: Sequence[Place], values: Iterable[Value]) -> bytes:
    """The whole model in one piece."""
    pieces: list[bytes | memoryview] = [head]
    end = len(head)
    for place, value in zip(places, values, strict=True):
        pieces += [bytes(place.offset - end), _data(_made(value, place.size))]
        end = place.offset + place.size
    return b"".join(pieces)


def _fill(descriptor: int, size: int, head: bytes, places: Sequence[Place], values: Iterable[Value]) -> None:
    """Writes the whole model to a file. Constants that are made on the way are let go one by one."""
    os.ftruncate(descriptor, size)
    _write(descriptor, head, 0)
    for place, value in zip(places, values, strict=True):
        _store(descriptor, value, place.offset, place.size)


def _made(value: Value, size: int) -> AnyArray:
    array = value if isinstance(value, np.ndarray) else value()
    assert array.nbytes == size, f"a constant has {array.nbytes} bytes, not {size}"
    return array


def _data(array: AnyArray) -> memoryview:
    return (array if array.flags.c_contiguous else np.ascontiguousarray(array)).data


def _store(descriptor: int, value: Value, offset: int, size: int) -> None:
    array = _made(value, size)
    _write(descriptor, _data(array), offset)
    # from the cache an array may come that lies elsewhere within its page: equal ones are kept once
    if array is value and is_shareable(array) and address(array) % PAGE == offset % PAGE:
        share(array, descriptor, offset)


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    size = memoryview(data).nbytes
    done = os.pwrite(descriptor, data, offset)
    while done < size:  # one call writes 2 GiB at most
        done += os.pwrite(descriptor, memoryview(data).cast("B")[done:], offset + done)
