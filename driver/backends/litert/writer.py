"""Writes TFLite models: a flatbuffer with its constants behind it, in one memory file that interpreters map.

Tensors and operators are added one by one; constants that have to be made are only kept as functions until the model is
written, and let go one by one as they are, so that a model that is never written costs nothing.
"""

import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from driver.backends.litert.engine import schema
from driver.backends.litert.flatbuffer import PLACE, Packer, Table
from driver.backends.litert.pages import PAGE, address, is_shareable, share
from nnhal.types import AnyArray, Bytes

_ALIGNMENT = 64
"""Bytes at which constants begin: as much as the widest vector instructions want."""
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
    """A written model: a memory file without a name, which lives as long as this object.

    The memory of large constants that nobody may write to shares the file's pages from then on.

    Args:
        head: the flatbuffer.
        places: of the constants behind it.
        values: the constants.
    """

    def __init__(self, head: bytes, places: Sequence[Place], values: Iterable[Value]) -> None:
        self.head_size = len(head)
        self.places = tuple(places)
        self.size = max((place.offset + place.size for place in places), default=len(head))
        self._descriptor = os.memfd_create("nnhal-litert", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, self.size)
        _write(self._descriptor, head, 0)
        for place, value in zip(places, values, strict=True):
            _store(self._descriptor, value, place.offset, place.size)

    @property
    def path(self) -> str:
        """Where interpreters open it."""
        return f"/proc/self/fd/{self._descriptor}"

    def contents(self) -> Bytes:
        """What is in the file. Not to be written."""
        return np.frombuffer(mmap.mmap(self._descriptor, self.size, prot=mmap.PROT_READ), np.uint8)

    def __del__(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator: the number of its code, its tensors, and the options table with its fields."""

    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str
    fields: tuple[tuple[str, object], ...]


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
        head = self._room()
        places = self._places(head)
        flatbuffer = self._pack(inputs, outputs, places)
        assert len(flatbuffer) <= head, f"the flatbuffer has {len(flatbuffer)} bytes, room is for {head}"
        return ModelFile(flatbuffer, places, (value for _, _, value in self._constants))

    def _room(self) -> int:
        """Bytes that the flatbuffer gets before the first constant: offsets must be known before it is packed.

        It is more than enough; what is not used is a hole in the file and costs no memory.
        """
        scales = sum(len(spec.quantization.scales) for spec in self.specs if spec.quantization)
        entries = sum(len(o.inputs) + len(o.outputs) for o in self._operators) + sum(map(len, self.shapes))
        parts = len(self.specs) + len(self._operators) + len(self._constants)
        return (1024 * parts + 16 * (scales + entries) + 16 * PAGE) // PAGE * PAGE

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

    def _pack(self, inputs: Sequence[int], outputs: Sequence[int], places: Sequence[Place]) -> bytes:
        packer = Packer()
        nothing = packer.table(_BUFFER, 0, 0)
        buffers = [nothing, *(packer.table(_BUFFER, place.offset, place.size) for place in places)]
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
        children = (packer.children(codes), packer.children([graph]), packer.children(buffers))
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


def _store(descriptor: int, value: Value, offset: int, size: int) -> None:
    array = value if isinstance(value, np.ndarray) else value()
    assert array.nbytes == size, f"a constant has {array.nbytes} bytes, not {size}"
    _write(descriptor, (array if array.flags.c_contiguous else np.ascontiguousarray(array)).data, offset)
    # from the cache an array may come that lies elsewhere within its page: equal ones are kept once
    if array is value and is_shareable(array) and address(array) % PAGE == offset % PAGE:
        share(array, descriptor, offset)


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    size = memoryview(data).nbytes
    done = os.pwrite(descriptor, data, offset)
    while done < size:  # one call writes 2 GiB at most
        done += os.pwrite(descriptor, memoryview(data).cast("B")[done:], offset + done)
