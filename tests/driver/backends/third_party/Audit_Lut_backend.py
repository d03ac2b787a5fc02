"""Backend of a third party, written by docs/backends.md alone: functions of 8 bits by tables of 256 bytes.

It runs TANH, LOGISTIC and RELU* of QUANT8, and an extension whose operations take or make a table: LOOKUP applies a
table to a tensor, CHAIN joins two tables to one. A table is a scalar of 256 bytes. Tables are saved, so that a warm
start does not compute them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nnhal_backend.v1 import (
    AnyArray,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    ErrorStatus,
    Extension,
    ExtensionOperandTypeInformation,
    HalError,
    OperandType,
    OperationType,
    OperationView,
    Output,
    Run,
    Sections,
    SubgraphView,
    Support,
)

NAME = "com.audit.lut"
TABLE, TABLE_BYTES = 1, 256
LOOKUP, CHAIN = 0, 1

FUNCTIONS: dict[int, Callable[[AnyArray], AnyArray]] = {
    OperationType.TANH: np.tanh,
    OperationType.LOGISTIC: lambda x: 1 / (1 + np.exp(-x)),
    OperationType.RELU: lambda x: np.maximum(x, 0),
    OperationType.RELU1: lambda x: np.clip(x, -1, 1),
    OperationType.RELU6: lambda x: np.clip(x, 0, 6),
}
TYPES = {OperandType.TENSOR_QUANT8_ASYMM: np.uint8, OperandType.TENSOR_QUANT8_ASYMM_SIGNED: np.int8}


def table_of(view: OperationView) -> AnyArray:
    """Return the output's bytes for each byte of the input."""
    source, target = view.operand("input"), view.graph.operands[view.operation.outputs[0]]
    dtype = TYPES[OperandType(source.type)]
    codes = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    values = FUNCTIONS[view.type]((codes - source.zero_point) * source.scale)
    limits = np.iinfo(dtype)
    rounded = np.round(values / target.scale) + target.zero_point
    return rounded.clip(limits.min, limits.max).astype(dtype).view(np.uint8)


def is_table(view: OperationView, operand: int) -> bool:
    """Return whether an operand is a table of the extension."""
    type_ = view.graph.operands[operand].type
    return view.graph.extension(type_) == NAME and type_ & 0xFFFF == TABLE


class Lut(Backend):
    """The backend."""

    id = "Lut"
    version = "1"

    def supports(self, operation: OperationView) -> Support:
        """Return whether a table can compute an operation."""
        if operation.extension == NAME:
            return self._supports_extension(operation)
        if operation.type not in FUNCTIONS:
            return Support("there is no table for it")
        if operation.operand("input").type not in TYPES:
            return Support("only 8 bits are supported", "TENSOR_QUANT8_ASYMM")
        return Support()

    def _supports_extension(self, operation: OperationView) -> Support:
        number, inputs, outputs = operation.type & 0xFFFF, operation.operation.inputs, operation.operation.outputs
        if number not in (LOOKUP, CHAIN) or len(inputs) != 2 or len(outputs) != 1:
            return Support("the extension has LOOKUP(tensor, table) and CHAIN(table, table)")
        first, last = (is_table(operation, operand) for operand in (inputs[0], outputs[0]))
        if not is_table(operation, inputs[1]) or (first, last) != ((number == CHAIN),) * 2:
            return Support("LOOKUP takes a tensor and a table, CHAIN takes two tables and gives one")
        if number == LOOKUP and operation.graph.operands[inputs[0]].type not in TYPES:
            return Support("only 8 bits are supported", "TENSOR_QUANT8_ASYMM")
        return Support()

    def extensions(self) -> Sequence[Extension]:
        """Return the extension with its scalar type."""
        return (Extension(NAME, (ExtensionOperandTypeInformation(TABLE, is_tensor=False, byte_size=TABLE_BYTES),)),)

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Compute the tables."""
        own = {view.index: table_of(view) for view in subgraph.operations if view.extension != NAME}
        return LutSubgraph(subgraph, own)

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Read the tables."""
        indexes = np.frombuffer(sections.model, np.int32).tolist()
        if len(indexes) != len(sections.data) or any(table.shape != (TABLE_BYTES,) for table in sections.data):
            raise HalError(ErrorStatus.GENERAL_FAILURE, "the saved tables do not fit the model")
        return LutSubgraph(subgraph, {i: np.array(table) for i, table in zip(indexes, sections.data, strict=True)})


@dataclass(eq=False)
class LutSubgraph(CompiledSubgraph):
    """Operations with their tables."""

    subgraph: SubgraphView
    tables: dict[int, AnyArray]

    def save(self) -> Sections:
        """Return the tables."""
        return Sections(np.array(list(self.tables), np.int32).tobytes(), tuple(self.tables.values()))

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        """Look up every byte."""
        values = dict(self.subgraph.graph.constants)
        values.update({o: v for o, v in zip(self.subgraph.inputs, inputs, strict=True) if v is not None})
        for view in self.subgraph.operations:
            run.check()
            operands = view.operation.inputs
            table = self.tables[view.index] if view.index in self.tables else as_bytes(values[operands[1]])
            source = as_bytes(values[operands[0]]) if is_table(view, operands[0]) else values[operands[0]]
            result = table[source.view(np.uint8)]
            is_scalar = is_table(view, view.operation.outputs[0])
            values[view.operation.outputs[0]] = (
                result.view("V256").reshape(()) if is_scalar else result.view(source.dtype)
            )
        for operand, output in zip(self.subgraph.outputs, outputs, strict=True):
            output.write(values[operand])


def as_bytes(table: AnyArray) -> AnyArray:
    """Return the bytes of a table: of a constant, or of an input."""
    return np.frombuffer(table.tobytes(), np.uint8)


def GetBackendId() -> str:
    """Return the id."""
    return Lut.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the interface that this file was written for."""
    return (1, 2)


BackendFactory = Lut
