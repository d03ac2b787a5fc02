"""Small .tflite files for the tests, and summaries of imported models with one line per operation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnhal.types import (
    DTYPES,
    AnyArray,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    is_tensor,
    operation_name,
)

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
flatbuffers = pytest.importorskip("flatbuffers")


_BITS = {"INT4": 4, "INT2": 2}


@dataclass
class Tensor:
    """A tensor of a file. `data` makes it a constant; `more` sets further fields of the schema's TensorT."""

    shape: tuple[int, ...]
    type: str = "FLOAT32"
    data: npt.ArrayLike | None = None
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    dimension: int = 0
    name: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def quant(shape: tuple[int, ...], scale: float = 0.5, zero_point: int = 3, type_: str = "UINT8") -> Tensor:
    """Return an 8-bit tensor that is not a constant."""
    return Tensor(shape, type_, scale=(scale,), zero_point=(zero_point,))


def ints(*values: int, type_: str = "INT32") -> Tensor:
    """Return a constant of rank 1."""
    return Tensor((len(values),), type_, values)


def options(kind: str, **values: Any) -> Any:
    """Return an options table: `options("Pool2D", strideW=2)`."""
    table = getattr(schema, f"{kind}OptionsT")()
    for name, value in values.items():
        assert hasattr(table, name), name
        setattr(table, name, value)
    return table


@dataclass
class Op:
    """An operator of a file. None in `inputs` is an omitted optional input. `branches` become subgraphs 1, 2, ..."""

    name: str
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    options: Any = None
    custom: str | None = None
    branches: Sequence["Branch"] = ()
    version: int = 1


@dataclass
class Branch:
    """A further subgraph of a file."""

    operators: Sequence[Op]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


def build(
    *operators: Op, inputs: Sequence[Tensor] | None = None, outputs: Sequence[Tensor] | None = None, **more: Any
) -> bytes:
    """Return a file with these operators.

    Args:
        operators: the operators in order.
        inputs: inputs of the graph. By default, all tensors without data that no operator writes.
        outputs: outputs of the graph. By default, those of the last operator.
        more: further fields of the schema's ModelT.
    """
    if inputs is None:
        written = [t for op in operators for t in op.outputs]
        read = [t for op in operators for t in op.inputs if t is not None and t.data is None and not t.more]
        inputs = [t for t in _distinct(read) if not any(t is w for w in written)]
    model = schema.ModelT()
    model.version = 3
    model.buffers, model.operatorCodes = [schema.BufferT()], []
    branches = [branch for op in operators for branch in op.branches]
    main = Branch(operators, inputs, outputs or operators[-1].outputs)
    model.subgraphs = [_subgraph(branch, model) for branch in (main, *branches)]
    for name, value in more.items():
        setattr(model, name, value)
    return pack(model)


def _subgraph(branch: Branch, model: Any) -> Any:
    used = [t for op in branch.operators for t in (*op.inputs, *op.outputs) if t is not None]
    tensors = _distinct([*used, *branch.inputs, *branch.outputs])
    graph = schema.SubGraphT()
    graph.tensors = [_tensor(tensor, model.buffers) for tensor in tensors]
    graph.inputs, graph.outputs = _indexes(branch.inputs, tensors), _indexes(branch.outputs, tensors)
    first = len(model.operatorCodes)
    graph.operators = [_operator(op, i, tensors) for i, op in enumerate(branch.operators, first)]
    model.operatorCodes += [_code(op) for op in branch.operators]
    return graph


def _distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    found: list[Tensor] = []
    for tensor in tensors:
        if not any(tensor is known for known in found):
            found.append(tensor)
    return found


def unpack(data: bytes) -> Any:
    """Return the ModelT of a file, which can be changed."""
    return schema.ModelT.InitFromPackedBuf(bytearray(data), 0)


_Builder: Any = flatbuffers.Builder


class AlignedBuilder(_Builder):  # type: ignore[misc]
    """Builder that aligns the data of buffers as the schema demands. flatbuffers ignores `force_align` in Python."""

    def StartVector(self, elemSize: int, numElems: int, alignment: int) -> Any:
        """Begin a vector. Those of bytes are aligned to 16 bytes."""
        return super().StartVector(elemSize, numElems, 16 if elemSize == 1 else alignment)


def pack(model: Any, *, aligned: bool = False) -> bytes:
    """Return the bytes of a ModelT, with the alignment of real files if `aligned`."""
    builder = (AlignedBuilder if aligned else flatbuffers.Builder)(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _tensor(tensor: Tensor, buffers: list[Any]) -> Any:
    table = schema.TensorT()
    table.shape, table.type, table.name = list(tensor.shape), getattr(schema.TensorType, tensor.type), tensor.name
    if tensor.scale:
        table.quantization = schema.QuantizationParametersT()
        table.quantization.scale, table.quantization.zeroPoint = list(tensor.scale), list(tensor.zero_point)
        table.quantization.quantizedDimension = tensor.dimension
    if tensor.data is not None:
        table.buffer = len(buffers)
        buffers.append(schema.BufferT())
    if tensor.data is not None and tensor.type == "STRING":
        buffers[-1].data = np.frombuffer(_pack_strings(np.asarray(tensor.data).reshape(-1).tolist()), np.uint8)
    elif tensor.data is not None:
        bits = _BITS.get(tensor.type, 0)
        names = {"FLOAT32": "f4", "FLOAT16": "f2", "BOOL": "?", "BFLOAT16": "u2"}
        dtype = np.dtype("i1" if bits else names.get(tensor.type, tensor.type.lower()))
        data = np.ascontiguousarray(tensor.data, dtype).reshape(-1)
        buffers[-1].data = _pack_bits(data, bits) if bits else data.view(np.uint8)
    for name, value in tensor.more.items():
        assert hasattr(table, name), name
        setattr(table, name, value)
    return table


def _pack_strings(texts: Sequence[str]) -> bytes:
    """Return strings as files have them: their number, where each one begins and the last one ends, and the bytes."""
    parts = [text.encode() for text in texts]
    offsets = np.cumsum([4 * (len(parts) + 2), *map(len, parts)])
    return b"".join([np.array([len(parts), *offsets], "<i4").tobytes(), *parts])


def _pack_bits(values: AnyArray, bits: int) -> AnyArray:
    """Return integers of a few bits, the first of each byte in its lowest bits."""
    padded = np.resize(np.append(values, np.zeros(8, np.int8)), (len(values) * bits + 7) // 8 * 8 // bits)
    parts = padded.reshape(-1, 8 // bits) & ((1 << bits) - 1)
    return np.asarray((parts << (np.arange(8 // bits) * bits)).sum(1), np.uint8)


def _operator(op: Op, index: int, tensors: list[Tensor]) -> Any:
    table = schema.OperatorT()
    table.opcodeIndex = index
    table.inputs, table.outputs = _indexes(op.inputs, tensors), _indexes(op.outputs, tensors)
    if op.options is not None:
        kind = type(op.options).__name__[:-1]
        if hasattr(schema.BuiltinOptions, kind):
            table.builtinOptionsType, table.builtinOptions = getattr(schema.BuiltinOptions, kind), op.options
        else:
            table.builtinOptions2Type, table.builtinOptions2 = getattr(schema.BuiltinOptions2, kind), op.options
    return table


_VERSIONS = {
    ("STRIDED_SLICE", "offset"): 8,
    ("TRANSPOSE_CONV", "fusedActivationFunction"): 4,
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", "diagonalRecurrentTensors"): 4,
}
"""Versions of the operators that have an option, as converters write them."""


def _code(op: Op) -> Any:
    table = schema.OperatorCodeT()
    table.builtinCode = getattr(schema.BuiltinOperator, op.name)
    table.deprecatedBuiltinCode = min(table.builtinCode, 127)
    table.customCode = op.custom
    stated = (
        (version, getattr(op.options, option, 0)) for (name, option), version in _VERSIONS.items() if name == op.name
    )
    needed = [version for version, value in stated if value]
    table.version = max([op.version, *needed])
    return table


def _indexes(selected: Sequence[Tensor | None], tensors: list[Tensor]) -> list[int]:
    return [-1 if t is None else next(i for i, known in enumerate(tensors) if known is t) for t in selected]


# ---- Summaries of models --------------------------------------------------------------------------------


def value_of(model: Model, operand: Operand) -> AnyArray:
    """Return the value of a constant."""
    location = operand.location
    if operand.lifetime == OperandLifeTime.CONSTANT_COPY:
        data = np.frombuffer(model.operand_values, np.uint8)
    else:
        pool = model.pools[location.pool_index]
        assert isinstance(pool, Memory)
        data = pool.view
    assert operand.lifetime in (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_POOL)
    raw = data[location.offset : location.offset + location.length]
    return np.frombuffer(raw.tobytes(), DTYPES[operand.type]).reshape(operand.dimensions)


def arguments(model: Model, operation: int = 0) -> list[Operand]:
    """Return the operands of an operation's inputs, followed by those of its outputs."""
    operation_ = model.main.operations[operation]
    return [model.main.operands[i] for i in (*operation_.inputs, *operation_.outputs)]


def listing(model: Model) -> list[str]:
    """Return one line per operation: `MAX_POOL_2D in0 1 2 2 3 3 0 -> out0`. Scalars and INT32 constants are values."""
    return [
        " ".join(
            [
                operation_name(op.type),
                *(_word(model, i) for i in op.inputs),
                "->",
                *(_word(model, i) for i in op.outputs),
            ]
        )
        for op in model.main.operations
    ]


def _word(model: Model, index: int) -> str:
    operand = model.main.operands[index]
    match operand.lifetime:
        case OperandLifeTime.SUBGRAPH_INPUT:
            return f"in{model.main.input_indexes.index(index)}"
        case OperandLifeTime.SUBGRAPH_OUTPUT:
            return f"out{model.main.output_indexes.index(index)}"
        case OperandLifeTime.TEMPORARY_VARIABLE:
            return f"tmp{index}"
        case OperandLifeTime.NO_VALUE:
            return "none"
    value = value_of(model, operand)
    if not is_tensor(operand.type):
        return str(value.item())
    return str(value.tolist()).replace(" ", "") if operand.type == OperandType.TENSOR_INT32 else "const"
