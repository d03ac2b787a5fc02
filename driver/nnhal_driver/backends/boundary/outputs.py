"""Outputs of a compiled subgraph, checked before the host uses them: type, shape, and one value for each."""

from math import prod
from typing import Any

import numpy as np

from nnhal.errors import HalError, general_failure, limit_exceeded
from nnhal.types import DTYPES, AnyArray, ErrorStatus, elements, is_extension, is_tensor
from nnhal_driver.backends.api import CompiledSubgraph, Output, Run
from nnhal_driver.backends.boundary.calls import describe
from nnhal_driver.backends.division import LARGE, copy_of, copy_to
from nnhal_driver.extension_types import ExtensionTypes
from nnhal_driver.graph import Graph
from nnhal_driver.validation.rank import check_rank

_NO_DTYPE = np.dtype(np.void)


def fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Return whether a shape fits the declared one, where 0 is an unknown dimension and () an unknown rank."""
    if not declared:
        return True
    return len(declared) == len(shape) and all(d in (0, s) for d, s in zip(declared, shape, strict=True))


def shape_error(name: str, shape: tuple[int, ...], declared: tuple[int, ...]) -> HalError:
    """Return the error for an output whose shape does not fit the declared one."""
    return general_failure(f"{name} has shape {list(shape)}; declared is {list(declared)}", "V-RUN-04")


def check_size(name: str, shape: tuple[int, ...], size: int, tensor_bytes: int) -> None:
    """Check the rank of an output, and its size in bytes.

    Raises:
        HalError: GENERAL_FAILURE: the rank is too high; RESOURCE_EXHAUSTED_PERSISTENT: it is too large.
    """
    check_rank(len(shape), name)
    if size > tensor_bytes:
        reason = f"{name} has shape {list(shape)}, {size} bytes; the limit is {tensor_bytes}"
        raise limit_exceeded("tensor_bytes", reason, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)


class OutputSpec:
    """Values that one output of a compiled subgraph may have.

    Args:
        name: name of the output in messages.
        graph, operand: its operand.
        types: operand types of the backend's extensions.
        compiled: the subgraph, which may write it in a layout or in memory of the backend.
        tensor_bytes: largest size of a value.

    Attributes:
        dtype: the dtype of arrays; that of nothing else for an operand of an extension's type, or in memory of the
            backend.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        operand: int,
        types: ExtensionTypes,
        compiled: CompiledSubgraph,
        tensor_bytes: int,
    ) -> None:
        type_ = graph.operands[operand].type
        self.name = name
        self._on_device = operand in compiled.device_operands
        self._buffer_dtype: np.dtype[Any] = DTYPES.get(type_, _NO_DTYPE)
        self.dtype: np.dtype[Any] = _NO_DTYPE if self._on_device else self._buffer_dtype
        self._is_opaque = is_extension(type_)
        self._element_bytes = types[type_].byte_size if type_ in types else 0
        self._is_tensor = types[type_].is_tensor if type_ in types else self._is_opaque or is_tensor(type_)
        self._relayout = compiled.layouts.get(operand)
        self._tensor_bytes = tensor_bytes

    def check(self, array: object, declared: tuple[int, ...]) -> AnyArray:
        """Return what the backend wrote in the form that the host expects.

        Raises:
            HalError: GENERAL_FAILURE: it is not a value of the output; RESOURCE_EXHAUSTED_PERSISTENT: it is too large.
        """
        if self._on_device:
            buffer: AnyArray = self._check_buffer(array, declared)  # it takes the place of an array in the host
            return buffer
        if not isinstance(array, np.ndarray | np.generic):
            raise self._error(f"is {describe(array)}; expected an array")
        value: AnyArray = np.asarray(array)  # a subclass may have methods of its own
        check_size(self.name, value.shape, value.nbytes, self._tensor_bytes)
        if self._relayout is not None:
            declared = self._relayout.own_shape(declared)
        if self._is_opaque:
            return self._check_opaque(value, declared)
        if value.dtype != self.dtype:
            raise self._error(f"has dtype {value.dtype}; expected {self.dtype}")
        if not self._fits(value.shape, declared):
            raise shape_error(self.name, value.shape, declared)
        return value if self._is_tensor else value.reshape(declared)

    def _check_buffer(self, buffer: object, declared: tuple[int, ...]) -> Any:
        """Return a buffer of the backend's memory if it has the shape and dtype of the output."""
        if isinstance(buffer, np.ndarray):
            raise self._error("is an array; expected a buffer of the memory in device_operands")
        shape, dtype = getattr(buffer, "shape", None), getattr(buffer, "dtype", None)
        if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise self._error(f"is {describe(buffer)}, which has no shape")
        if not isinstance(dtype, np.dtype) or not (self._is_opaque or dtype == self._buffer_dtype):
            raise self._error(f"has dtype {dtype}; expected {self._buffer_dtype}")
        check_size(self.name, shape, prod(shape) * dtype.itemsize, self._tensor_bytes)
        if not self._fits(shape, declared):
            raise shape_error(self.name, shape, declared)
        return buffer

    def _check_opaque(self, value: AnyArray, declared: tuple[int, ...]) -> AnyArray:
        """Return the value of an extension's type. A backend may write the bytes of all elements instead."""
        size = self._element_bytes
        if value.dtype.hasobject:
            raise self._error(f"has dtype {value.dtype}; expected bytes or opaque elements")
        if not size or (value.itemsize == size and self._fits(value.shape, declared)):
            return value
        is_known = 0 not in declared and (bool(declared) or not self._is_tensor)
        if is_known and value.nbytes == size * prod(declared):
            return elements(np.ascontiguousarray(value).reshape(-1).view(np.uint8), declared)
        given = f"shape {list(value.shape)} of {value.itemsize} bytes each"
        raise self._error(f"has {given}; expected {list(declared)} elements of {size}")

    def _fits(self, shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
        return fits(shape, declared) if self._is_tensor else prod(shape) == 1

    def _error(self, fault: str) -> HalError:
        return general_failure(f"{self.name} {fault}")


class CheckedOutput:
    """Output that takes one value, if it is valid. The backend sees this object. Hot path: each execution has its own.

    Attributes:
        destination: where the value goes; None once it has arrived, or when the execution has ended.
    """

    __slots__ = ("_expected", "_run", "declared", "destination")

    def __init__(self, destination: Output, expected: OutputSpec, run: Run) -> None:
        self.declared = destination.declared
        self.destination: Output | None = destination
        self._expected = expected
        self._run = run

    def write(self, array: Any, *, keep: bool = False) -> None:
        """Check the value and pass it on.

        Raises:
            HalError: it is invalid, the second one, or late.
        """
        destination, expected = self.destination, self._expected
        if destination is None:
            raise general_failure(f"{expected.name} was written twice, or after the execution")
        # most values have the shape that is declared; dtypes of the HAL's types exist once
        if type(array) is not np.ndarray or array.dtype is not expected.dtype or array.shape != self.declared:
            array = expected.check(array, self.declared)
        if type(array) is np.ndarray and array.size > LARGE:
            self._deliver_large(destination, array, keep)
        else:
            destination.write(array, keep=keep)
        self.destination = None

    def _deliver_large(self, destination: Output, array: AnyArray, keep: bool) -> None:
        """Pass a value on, and copy it in blocks where it is copied: 512 MiB at once take 0.2 s."""
        view = getattr(destination, "view", None)  # of an output in a region of a pool
        if view is not None and (target := view(array.shape, array.dtype)) is not None:
            copy_to(target, array, self._run.check)
        else:
            is_kept = keep and array.flags.c_contiguous
            destination.write(array if is_kept else copy_of(array, self._run.check), keep=True)

    def missing(self) -> HalError:
        """Return the error for an output that has no value."""
        return general_failure(f"{self._expected.name} was not written")
