"""Memory of a native plug-in's device: values that stay there between its partitions."""

import ctypes as c
import weakref
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory
from nnhal_driver.backends.native.library import FunctionTable
from nnhal_driver.backends.native.marshalling import TensorStruct, contiguous, describe_tensor

_EXTENSION_DEVICE = 12
"""DLDeviceType of a device that only the plug-in knows."""


class NativeBuffer:
    """A buffer of the plug-in. The plug-in gets `struct`, whose data is its own handle."""

    def __init__(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> None:
        self.shape, self.dtype = shape, dtype
        self.struct = describe_tensor(shape, _strides(shape), dtype, None, _EXTENSION_DEVICE)


class NativeMemory(DeviceMemory):
    """Memory behind the functions `acquire_buffer`, `release_buffer` and `copy_buffer` of a plug-in."""

    def __init__(self, table: FunctionTable) -> None:
        self._table = table

    def acquire(self, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> NativeBuffer:
        """Ask the plug-in for a buffer."""
        buffer = NativeBuffer(shape, dtype)
        handle = self._table.call("acquire_buffer", c.byref(buffer.struct))
        if not handle:
            raise MemoryError(f"the backend has no memory for {dtype} {list(shape)}")
        buffer.struct.data = handle
        weakref.finalize(buffer, self._table.call, "release_buffer", handle).atexit = False
        return buffer

    def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        """Have the plug-in copy a value. A HalError has its status and its reason."""
        tensors: list[TensorStruct | NativeBuffer] = []
        for value in (source, target):
            assert isinstance(value, NativeBuffer | np.ndarray)
            tensors.append(value if isinstance(value, NativeBuffer) else TensorStruct(contiguous(value)))
        self._table.run("copy_buffer", *(c.byref(tensor.struct) for tensor in tensors))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, stride = [], 1
    for dimension in reversed(shape):
        strides.append(stride)
        stride *= dimension
    return tuple(reversed(strides))
