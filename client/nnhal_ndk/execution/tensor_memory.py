"""Tensors that stay on a device, or in this process where no device can hold them."""

import threading
from collections.abc import Sequence

import numpy as np

import nnhal
from nnhal.types import AnyArray, Bytes, Operand, is_fully_specified
from nnhal_ndk.extensions import element_dtype
from nnhal_ndk.model.operand_type import Dimensions, known_size, merge_dimensions
from nnhal_ndk.results import NdkError, bad_data, op_failed

Role = tuple[object, bool, int]
"""Use of a memory: the compilation, whether it is an output, and the position."""


class TensorMemory:
    """Tensor for some inputs and outputs of compilations. Thread safe.

    Args:
        operand: type, quantization, and the dimensions that are known.
        roles: its uses.
        buffer: the buffer of a device that holds it; None to hold it here.
    """

    def __init__(self, operand: Operand, roles: frozenset[Role], buffer: nnhal.Buffer | None) -> None:
        self.operand = operand
        self.roles = roles
        self.buffer = buffer
        self._lock = threading.Lock()
        self._dimensions: Dimensions | None = None
        self._value: AnyArray | None = None

    @property
    def dimensions(self) -> Dimensions | None:
        """Dimensions of its value; None while it is uninitialized."""
        return self._dimensions

    def require_value(self) -> Dimensions:
        """Return the dimensions of its value.

        Raises:
            NdkError: BAD_DATA: it is uninitialized.
        """
        if self._dimensions is None:
            raise bad_data("the memory is uninitialized")
        return self._dimensions

    def input_value(self, expected: Dimensions, name: str) -> AnyArray | nnhal.Buffer:
        """Return its value for an execution, which expects dimensions (0 is any). `name` is the input's in messages.

        Raises:
            NdkError: OP_FAILED: it is uninitialized, or its value has other dimensions.
        """
        try:
            merge_dimensions(expected, self.require_value(), name)
        except NdkError as error:
            raise op_failed(error.reason) from None
        if self.buffer is not None:
            return self.buffer
        assert self._value is not None
        return self._value

    def set_output(self, value: object, dimensions: Dimensions) -> None:
        """Take the output of an execution."""
        with self._lock:
            self._value = value if isinstance(value, np.ndarray) else None
            self._dimensions = dimensions

    def clear(self) -> None:
        """Mark it as uninitialized."""
        with self._lock:
            self._dimensions = None

    def read(self) -> AnyArray:
        """Return a copy of its value.

        Raises:
            NdkError: BAD_DATA: it is uninitialized.
            HalError: the device failed.
        """
        self.require_value()
        if self.buffer is not None:
            return self.buffer.read()
        assert self._value is not None
        return self._value

    def write_bytes(self, data: Bytes) -> None:
        """Replace its value by bytes.

        Raises:
            NdkError: BAD_DATA: they do not have its size, or its dimensions are not all known.
            HalError: the device failed.
        """
        shape = self.operand.dimensions
        if not is_fully_specified(self.operand.type, shape) or known_size(self.operand.type, shape) != data.size:
            raise bad_data(f"{data.size} bytes do not fill a tensor with dimensions {list(shape)}")
        self.write(data.view(element_dtype(self.operand.type)).reshape(shape))

    def write(self, value: AnyArray) -> None:
        """Replace its value.

        Raises:
            HalError: the device failed; the memory is then uninitialized.
        """
        self.clear()
        if self.buffer is not None:
            self.buffer.write(value)
        self.set_output(value.copy(), value.shape)

    def copy_from(self, source: "TensorMemory") -> None:
        """Copy the value of another tensor.

        Raises:
            NdkError: BAD_DATA: that one is uninitialized, or has another type or other dimensions.
            HalError: a device failed.
        """
        dimensions = source.require_value()
        if metadata(self.operand) != metadata(source.operand):
            raise bad_data("the memories have different types")
        merge_dimensions(self.operand.dimensions, dimensions, "the memory")
        self.write(source.read())


def metadata(operand: Operand) -> Sequence[object]:
    """Return what must be the same in operands that share a memory."""
    return operand.type, operand.scale, operand.zero_point, operand.extra_params
