"""Operand types of a native plug-in's extensions, and their values as arrays of opaque elements."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from driver.backends.api import Graph, OperationView
from nnhal.errors import general_failure
from nnhal.types import DTYPES, AnyArray, Extension, is_extension

MOST_BYTES = 2**16 - 1
"""Of one element: what DLPack's `lanes` can say."""


class OperandTypes:
    """The operand types that a plug-in knows.

    Args:
        extensions: its own.
    """

    def __init__(self, extensions: Sequence[Extension]) -> None:
        self._sizes = {(one.name, type_.type): type_.byte_size for one in extensions for type_ in one.operand_types}

    def fault(self, view: OperationView) -> str:
        """Why the plug-in cannot be shown the operands of an operation, or ""."""
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
                return f"operand {o} has {constant.nbytes} bytes, not {list(operand.dimensions)} elements of {size}"
        return ""

    def dtype(self, graph: Graph, operand: int) -> np.dtype[Any]:
        """What an operand's elements are."""
        type_ = graph.operands[operand].type
        size = self._size(graph, type_)
        return DTYPES[type_] if size is None else np.dtype((np.void, size))

    def seen(self, graph: Graph, operand: int, array: AnyArray) -> AnyArray:
        """A value as the plug-in sees it. One of an extension may come as bytes, from the model or another backend.

        Raises:
            HalError: the bytes are no value of the operand.
        """
        size = self._size(graph, graph.operands[operand].type)
        if size is None or (array.dtype.kind == "V" and array.itemsize == size):
            return array
        dimensions = graph.operands[operand].dimensions
        raw: AnyArray = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if raw.nbytes != size * prod(dimensions):
            raise general_failure(
                f"operand {operand} has {raw.nbytes} bytes, not {list(dimensions)} elements of {size}"
            )
        seen: AnyArray = raw.view(np.dtype((np.void, size))).reshape(dimensions)
        return seen

    def _size(self, graph: Graph, type_: int) -> int | None:
        return self._sizes.get((graph.extension(type_), type_ & 0xFFFF)) if is_extension(type_) else None
