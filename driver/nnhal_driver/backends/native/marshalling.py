"""Tensors and subgraphs for a plug-in: structs of `abi` over the memory of numpy arrays, without copies."""

import ctypes as c
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Protocol, TypeVar

import numpy as np

from nnhal.errors import general_failure
from nnhal.types import DTYPES, AnyArray, Extension, OperandLifeTime, SymmPerChannelQuantParams, is_extension
from nnhal_driver.backends.api import CompileOptions, Graph, OperationView, SubgraphView
from nnhal_driver.backends.native import abi

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6, "V": 1}
"""DLDataTypeCode by numpy's kind."""
_OPAQUE = "V"
"""Kind of elements of an extension type: vectors of bytes in DLPack."""
_CPU = 1
MAX_ELEMENT_BYTES = 2**16 - 1
"""Largest element of an extension type: the maximum of DLPack's `lanes`."""
T = TypeVar("T")


class TensorStruct:
    """A Tensor over an array, which it keeps alive. The plug-in gets `struct`."""

    def __init__(self, array: AnyArray) -> None:
        strides = tuple(stride // array.itemsize for stride in array.strides)
        self.array = array
        self.struct = describe_tensor(array.shape, strides, array.dtype, array.ctypes.data, _CPU)


def describe_tensor(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: "np.dtype[Any]", data: int | None, device: int
) -> abi.TensorDescription:
    """Return the struct of a tensor. It keeps its shape and strides alive, but not its data."""
    rank, size = len(shape), dtype.itemsize
    opaque = dtype.kind == _OPAQUE
    return abi.TensorDescription(
        data,
        abi.Device(device, 0),
        rank,
        abi.DataType(_CODES[dtype.kind], 8 if opaque else size * 8, size if opaque else 1),
        (c.c_int64 * rank)(*shape),
        (c.c_int64 * rank)(*strides),
        0,
    )


class HasStruct(Protocol):
    """A tensor in the form that a plug-in gets."""

    struct: abi.TensorDescription


class TensorList:
    """An array of pointers to tensors; None is NULL. The plug-in gets `struct`."""

    def __init__(self, tensors: Iterable[HasStruct | None]) -> None:
        self.tensors = list(tensors)
        pointers = (c.pointer(tensor.struct) if tensor else abi.TensorPointer() for tensor in self.tensors)
        self.struct = (abi.TensorPointer * len(self.tensors))(*pointers)


class ExtensionTypes:
    """Operand types of a plug-in's extensions."""

    def __init__(self, extensions: Sequence[Extension]) -> None:
        self._sizes = {
            (extension.name, type_.type): type_.byte_size
            for extension in extensions
            for type_ in extension.operand_types
        }

    def check(self, view: OperationView) -> str:
        """Return why the plug-in cannot read the operands of an operation, or ""."""
        graph = view.graph
        for o in dict.fromkeys((*view.operation.inputs, *view.operation.outputs)):
            operand = graph.operands[o]
            size = self._size(graph, operand.type)
            if not is_extension(operand.type):
                continue
            if size is None:
                name = graph.extension(operand.type) or "an unknown extension"
                return f"operand {o} has type {operand.type & 0xFFFF} of {name}, which the backend does not list"
            constant = graph.constants.get(o)
            if constant is not None and constant.nbytes != size * prod(operand.dimensions):
                return (
                    f"operand {o} has {constant.nbytes} bytes; expected {list(operand.dimensions)} elements of {size}"
                )
        return ""

    def dtype(self, graph: Graph, operand: int) -> np.dtype[Any]:
        """Return the dtype of an operand."""
        type_ = graph.operands[operand].type
        size = self._size(graph, type_)
        return DTYPES[type_] if size is None else np.dtype((np.void, size))

    def as_elements(self, graph: Graph, operand: int, array: AnyArray) -> AnyArray:
        """Return a value with the operand's dtype. Values of an extension type may be bytes, for example in the model.

        Raises:
            HalError: the number of bytes does not fit the operand.
        """
        size = self._size(graph, graph.operands[operand].type)
        if size is None or (array.dtype.kind == "V" and array.itemsize == size):
            return array
        dimensions = graph.operands[operand].dimensions
        raw: AnyArray = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if raw.nbytes != size * prod(dimensions):
            raise general_failure(
                f"operand {operand} has {raw.nbytes} bytes; expected {list(dimensions)} elements of {size}"
            )
        elements: AnyArray = raw.view(np.dtype((np.void, size))).reshape(dimensions)
        return elements

    def _size(self, graph: Graph, type_: int) -> int | None:
        return self._sizes.get((graph.extension(type_), type_ & 0xFFFF)) if is_extension(type_) else None


class SubgraphStruct:
    """A Subgraph struct, and everything that it points to.

    Args:
        view, types: the operations, and types of the plug-in's extensions.
        options: options of the preparation; None in `supports`.
        memory: planner of the compiled subgraph's memory.

    Attributes:
        boundary: inputs and outputs of the view by their index in the struct.
    """

    def __init__(
        self,
        view: SubgraphView,
        types: ExtensionTypes,
        options: CompileOptions | None = None,
        memory: abi.Memory | None = None,
    ) -> None:
        graph = view.graph
        check = abi.CheckFunction()
        if options is not None:
            check = abi.CheckFunction(lambda _: _must_end(options.check))
        self._referenced: list[object] = [memory, check]
        self._types = types
        used = dict.fromkeys(o for item in view.operations for o in (*item.operation.inputs, *item.operation.outputs))
        self._numbers = {operand: number for number, operand in enumerate(used)}
        self.boundary = {self._numbers[operand]: operand for operand in (*view.inputs, *view.outputs)}
        self.struct = abi.SubgraphDescription(
            c.sizeof(abi.SubgraphDescription),
            len(used),
            self._pointers(abi.Operand, [self._operand(graph, operand) for operand in used]),
            len(view.operations),
            self._pointers(abi.Operation, [self._operation(item) for item in view.operations]),
            len(view.inputs),
            self._indexes(view.inputs),
            len(view.outputs),
            self._indexes(view.outputs),
            view.relaxed,
            options.preference if options else 0,
            c.pointer(memory) if memory else None,
            options.network if options else 0,
            check,
            None,
        )

    @staticmethod
    def of_operation(view: OperationView, types: ExtensionTypes) -> "SubgraphStruct":
        """Return the struct of a single operation. Its inputs are all that is not constant or omitted."""
        graph = view.graph
        omitted = OperandLifeTime.NO_VALUE
        inputs = [
            operand
            for operand in dict.fromkeys(view.operation.inputs)
            if operand not in graph.constants and graph.operands[operand].lifetime != omitted
        ]
        return SubgraphStruct(SubgraphView(graph, [view], tuple(inputs), tuple(view.operation.outputs)), types)

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
        tensor = None if constant is None else self._keep(TensorStruct(self._types.as_elements(graph, index, constant)))
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
        self._referenced.append(item)
        return item


def _must_end(check: Callable[[], None]) -> int:
    try:
        check()
    except BaseException:  # it cannot pass through C; `NativeBackend` calls the check again
        return 1
    return 0


def contiguous(array: AnyArray) -> AnyArray:
    """Return the array itself if it is row-major without gaps, otherwise such a copy."""
    return np.ascontiguousarray(array) if array.ndim else array
