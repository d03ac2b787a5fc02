"""Operand types of a native plug-in's extensions, and their values as arrays of opaque elements."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nnhal.errors import general_failure
from nnhal.types import DTYPES, AnyArray, Extension, is_extension
from nnhal_driver.backends.api import Graph, OperationView

MAX_ELEMENT_BYTES = 2**16 - 1
"""Largest element: the maximum of DLPack's `lanes`."""


class ExtensionTypes:
    """Operand types of a plug-in's extensions.

    Args:
        extensions: the plug-in's extensions.
    """

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
