"""Writes TFLite models: a flatbuffer with its constants behind it, in one memory file that interpreters map.

Tensors and operators are added one by one; the constants are only kept as functions until the model is written, so that
a model that is never written costs nothing.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driver.backends.litert.engine import schema
from nnhal.types import AnyArray

_ALIGNMENT = 64
"""Bytes at which constants begin: as much as the widest vector instructions want."""
_PAGE = 4096


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


class ModelFile:
    """A written model: a memory file without a name, which lives as long as this object."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size

    @property
    def path(self) -> str:
        """Where interpreters open it."""
        return f"/proc/self/fd/{self._descriptor}"

    def __del__(self) -> None:
        os.close(self._descriptor)


class Writer:
    """A TFLite model of one subgraph in the making."""

    def __init__(self) -> None:
        self._schema = schema()
        self._codes: dict[str, int] = {}
        self._constants: list[Callable[[], AnyArray]] = []
        self.specs: list[Spec] = []
        self.shapes: list[tuple[int, ...]] = []
        self._buffers: list[int] = []
        self._operators: list[Any] = []

    def tensor(self, spec: Spec, shape: Sequence[int]) -> int:
        """Adds a tensor; gives its number."""
        self.specs.append(spec)
        self.shapes.append(tuple(shape))
        self._buffers.append(0)
        return len(self.specs) - 1

    def constant(self, spec: Spec, shape: Sequence[int], value: Callable[[], AnyArray]) -> int:
        """Adds a tensor whose value is `value()`."""
        made = self.tensor(spec, shape)
        self._constants.append(value)
        self._buffers[made] = len(self._constants)
        return made

    def is_constant(self, tensor: int) -> bool:
        """Whether a tensor has a value in the model."""
        return self._buffers[tensor] > 0

    def operator(self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: str, fields: object) -> None:
        """Adds an operator.

        Args:
            name: in BuiltinOperator.
            inputs, outputs: numbers of tensors; -1 is one that is left out.
            options: name of the options table, or "" for none.
            fields: mapping of the table's fields, as the object API calls them.
        """
        made = self._schema.OperatorT()
        made.opcodeIndex = self._codes.setdefault(name, len(self._codes))
        made.inputs, made.outputs = list(inputs), list(outputs)
        if options:
            made.builtinOptions = getattr(self._schema, f"{options}T")()
            made.builtinOptionsType = getattr(self._schema.BuiltinOptions, options)
            assert isinstance(fields, dict)
            for field, value in fields.items():
                assert hasattr(made.builtinOptions, field), f"{options} has no {field}"
                setattr(made.builtinOptions, field, value)
        self._operators.append(made)

    @property
    def operators(self) -> list[str]:
        """Names of the operators added so far."""
        names = list(self._codes)
        return [names[operator.opcodeIndex] for operator in self._operators]

    def write(self, inputs: Sequence[int], outputs: Sequence[int]) -> ModelFile:
        """The model with these inputs and outputs, written to a memory file."""
        values = [np.ascontiguousarray(value()) for value in self._constants]
        head = self._room()
        offsets = [head]
        for value in values:
            offsets.append(offsets[-1] + -(-value.nbytes // _ALIGNMENT) * _ALIGNMENT)
        flatbuffer = self._pack(inputs, outputs, [(o, v.nbytes) for o, v in zip(offsets, values, strict=False)])
        assert len(flatbuffer) <= head, f"the flatbuffer has {len(flatbuffer)} bytes, room is for {head}"
        descriptor = os.memfd_create("nnhal-litert", os.MFD_CLOEXEC)
        file = ModelFile(descriptor, offsets[-1])
        os.ftruncate(descriptor, offsets[-1])
        _write(descriptor, flatbuffer, 0)
        for offset, value in zip(offsets, values, strict=False):
            _write(descriptor, value.reshape(-1).view(np.uint8).data, offset)
        return file

    def _room(self) -> int:
        """Bytes that the flatbuffer gets before the first constant: offsets must be known before it is packed.

        It is more than enough; what is not used is a hole in the file and costs no memory.
        """
        scales = sum(len(spec.quantization.scales) for spec in self.specs if spec.quantization)
        entries = sum(len(o.inputs) + len(o.outputs) for o in self._operators) + sum(map(len, self.shapes))
        parts = len(self.specs) + len(self._operators) + len(self._constants)
        return (1024 * parts + 16 * (scales + entries) + 16 * _PAGE) // _PAGE * _PAGE

    def _pack(self, inputs: Sequence[int], outputs: Sequence[int], places: Sequence[tuple[int, int]]) -> bytes:
        import flatbuffers  # noqa: PLC0415 - comes with the engine

        s = self._schema
        model, graph = s.ModelT(), s.SubGraphT()
        model.version, model.subgraphs = 3, [graph]
        model.buffers = [s.BufferT() for _ in range(len(places) + 1)]
        for buffer, (offset, size) in zip(model.buffers[1:], places, strict=True):
            buffer.offset, buffer.size = offset, size
        model.operatorCodes = [self._code(name) for name in self._codes]
        graph.tensors = [self._tensor(i) for i in range(len(self.specs))]
        graph.operators, graph.inputs, graph.outputs = self._operators, list(inputs), list(outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _code(self, name: str) -> Any:
        made = self._schema.OperatorCodeT()
        code = getattr(self._schema.BuiltinOperator, name)
        made.builtinCode, made.deprecatedBuiltinCode, made.version = code, min(code, 127), 1
        return made

    def _tensor(self, tensor: int) -> Any:
        made, spec = self._schema.TensorT(), self.specs[tensor]
        made.shape, made.buffer, made.hasRank = list(self.shapes[tensor]), self._buffers[tensor], True
        made.type = getattr(self._schema.TensorType, spec.type)
        if spec.quantization is not None:
            made.quantization = self._schema.QuantizationParametersT()
            made.quantization.scale = list(spec.quantization.scales)
            made.quantization.zeroPoint = list(spec.quantization.zero_points)
            made.quantization.quantizedDimension = spec.quantization.dimension
        return made


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    rest = memoryview(data).cast("B") if len(data) else memoryview(b"")
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
