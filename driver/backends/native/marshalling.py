"""Tensors and subgraphs as a plug-in reads them: the structs of `abi` over the memory of numpy arrays, no copies."""

import ctypes as c
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from driver.backends.api import Graph, OperationView, SubgraphView
from driver.backends.native import abi
from driver.backends.native.operand_types import OperandTypes
from nnhal.types import AnyArray, OperandLifeTime, SymmPerChannelQuantParams

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6, "V": 1}
"""DLDataTypeCode by numpy's kind."""
_OPAQUE = "V"
"""Kind of elements that only an extension's owner understands: vectors of bytes, to DLPack."""
_CPU = 1
T = TypeVar("T")


class TensorOver:
    """A Tensor over an array, which it keeps alive. `struct` is what a plug-in gets."""

    def __init__(self, array: AnyArray) -> None:
        rank, size = array.ndim, array.itemsize
        opaque = array.dtype.kind == _OPAQUE
        self.array = array
        self._shape = (c.c_int64 * rank)(*array.shape)
        self._strides = (c.c_int64 * rank)(*(stride // size for stride in array.strides))
        self.struct = abi.Tensor(
            array.ctypes.data,
            abi.Device(_CPU, 0),
            rank,
            abi.DataType(_CODES[array.dtype.kind], 8 if opaque else size * 8, size if opaque else 1),
            self._shape,
            self._strides,
            0,
        )


class TensorList:
    """An array of pointers to tensors, None as NULL. `struct` is what a plug-in gets."""

    def __init__(self, arrays: Iterable[AnyArray | None]) -> None:
        self.tensors = [None if array is None else TensorOver(array) for array in arrays]
        pointers = (c.pointer(one.struct) if one else abi.TensorPointer() for one in self.tensors)
        self.struct = (abi.TensorPointer * len(self.tensors))(*pointers)


class SubgraphStruct:
    """A Subgraph and all that it points to, which live as long as this does.

    Attributes:
        operands: of the graph, by their numbers in the struct.

    Args:
        operations: of one graph.
        inputs, outputs: operands of the graph.
        types: of the plug-in's extensions.
        memory: for what is compiled from it.
    """

    def __init__(
        self,
        graph: Graph,
        operations: Sequence[OperationView],
        inputs: Sequence[int],
        outputs: Sequence[int],
        types: OperandTypes,
        relaxed: bool = False,
        preference: int = 0,
        memory: abi.Memory | None = None,
    ) -> None:
        self._kept: list[object] = [memory]
        self._types = types
        named = dict.fromkeys(o for one in operations for o in (*one.operation.inputs, *one.operation.outputs))
        self.operands = tuple(named)
        self._numbers = {operand: number for number, operand in enumerate(named)}
        self.struct = abi.Subgraph(
            c.sizeof(abi.Subgraph),
            len(named),
            self._pointers(abi.Operand, [self._operand(graph, operand) for operand in named]),
            len(operations),
            self._pointers(abi.Operation, [self._operation(one) for one in operations]),
            len(inputs),
            self._indexes(inputs),
            len(outputs),
            self._indexes(outputs),
            relaxed,
            preference,
            c.pointer(memory) if memory else None,
        )

    @staticmethod
    def of_view(
        view: SubgraphView, types: OperandTypes, preference: int, memory: abi.Memory | None = None
    ) -> "SubgraphStruct":
        """A partition."""
        ends = view.inputs, view.outputs
        return SubgraphStruct(view.graph, view.operations, *ends, types, view.relaxed, preference, memory)

    @staticmethod
    def of_operation(view: OperationView, types: OperandTypes) -> "SubgraphStruct":
        """One operation alone, whose inputs are all that is not constant."""
        given = [o for o in dict.fromkeys(view.operation.inputs) if not _is_fixed(view.graph, o)]
        return SubgraphStruct(view.graph, [view], given, view.operation.outputs, types)

    def _operation(self, view: OperationView) -> abi.Operation:
        operation = view.operation
        extension = view.extension
        return abi.Operation(
            c.sizeof(abi.Operation),
            operation.type & 0xFFFF if extension else operation.type,
            extension.encode() if extension else None,
            len(operation.inputs),
            self._indexes(operation.inputs),
            len(operation.outputs),
            self._indexes(operation.outputs),
        )

    def _operand(self, graph: Graph, index: int) -> abi.Operand:
        operand = graph.operands[index]
        extension = graph.extension(operand.type)
        params = operand.extra_params
        channels = params if isinstance(params, SymmPerChannelQuantParams) else None
        constant = graph.constants.get(index)
        tensor = None if constant is None else self._keep(TensorOver(self._types.seen(graph, index, constant)))
        return abi.Operand(
            c.sizeof(abi.Operand),
            operand.type & 0xFFFF if extension else operand.type,
            len(operand.dimensions),
            self._keep((c.c_uint32 * len(operand.dimensions))(*operand.dimensions)),
            operand.scale,
            operand.zero_point,
            len(channels.scales) if channels else 0,
            channels.channel_dim if channels else 0,
            self._keep((c.c_float * len(channels.scales))(*channels.scales)) if channels else None,
            operand.lifetime == OperandLifeTime.NO_VALUE,
            c.pointer(tensor.struct) if tensor else None,
            extension.encode() if extension else None,
        )

    def _indexes(self, operands: Sequence[int]) -> "c.Array[c.c_uint32]":
        return self._keep((c.c_uint32 * len(operands))(*(self._numbers[o] for o in operands)))

    def _pointers(self, struct: type[c.Structure], items: Sequence[c.Structure]) -> "c.Array[Any]":
        pointer = c.POINTER(struct)
        return self._keep((pointer * len(items))(*(c.pointer(item) for item in items)))

    def _keep(self, item: T) -> T:
        self._kept.append(item)
        return item


def _is_fixed(graph: Graph, operand: int) -> bool:
    return operand in graph.constants or graph.operands[operand].lifetime == OperandLifeTime.NO_VALUE


def dense(array: AnyArray) -> AnyArray:
    """The array itself where it is row-major without gaps, else a copy that is."""
    return np.ascontiguousarray(array) if array.ndim else array
