"""`libneuralnetworks.so` through ctypes, with types from the table of its functions."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.api.functions import FUNCTIONS, Parameter

_SCALARS: dict[str, Any] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "ANeuralNetworksOperationType": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "void": None,
}


class CType(ctypes.Structure):
    """An `ANeuralNetworksOperandType`."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("dimensionCount", ctypes.c_uint32),
        ("dimensions", ctypes.POINTER(ctypes.c_uint32)),
        ("scale", ctypes.c_float),
        ("zeroPoint", ctypes.c_int32),
    )


class CQuantParams(ctypes.Structure):
    """An `ANeuralNetworksSymmPerChannelQuantParams`."""

    _fields_ = (
        ("channelDim", ctypes.c_uint32),
        ("scaleCount", ctypes.c_uint32),
        ("scales", ctypes.POINTER(ctypes.c_float)),
    )


class CallFailed(Exception):
    """Call of the library that had to succeed, with its result code."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {ResultCode(code).name}")
        self.code = ResultCode(code)


class NdkLibrary:
    """The library. `library.Model_create(pointer)` calls `ANeuralNetworksModel_create` and returns its result."""

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        self._functions: dict[str, Callable[..., int]] = {}
        for function in FUNCTIONS:
            entry = getattr(library, function.name)
            entry.restype = _SCALARS[function.result]
            entry.argtypes = [_argument_type(parameter) for parameter in function.parameters]
            self._functions[short_name(function.name)] = entry

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            return self._functions[name]
        except KeyError:
            raise AttributeError(f"the library has no function {name}") from None

    def create(self, name: str, *arguments: Any) -> int:
        """Call a function that creates an object, and return its handle.

        Raises:
            CallFailed: the call failed.
        """
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        assert handle.value
        return handle.value

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that must succeed.

        Raises:
            CallFailed: the call failed.
        """
        code = self._functions[name](*arguments)
        if code != ResultCode.NO_ERROR:
            raise CallFailed(name, code)

    def number(self, name: str, *arguments: Any) -> tuple[int, int]:
        """Call a function that returns a number. Return its result code and the number."""
        value = ctypes.c_uint64()
        code = self._functions[name](*arguments, ctypes.byref(value))
        return code, value.value


def short_name(name: str) -> str:
    """Return the name of a function without the common prefix: Model_create, getDeviceCount."""
    return name.removeprefix("ANeuralNetworks").lstrip("_")


def _argument_type(parameter: Parameter) -> Any:
    return ctypes.c_void_p if parameter.is_pointer else _SCALARS[parameter.type]


def operand_type(type_: int, dimensions: Sequence[int] = (), scale: float = 0.0, zero_point: int = 0) -> Any:
    """Return a pointer to an operand type."""
    numbers = (ctypes.c_uint32 * len(dimensions))(*dimensions)
    return ctypes.byref(CType(type_, len(dimensions), numbers if dimensions else None, scale, zero_point))


def quant_params(channel_dim: int, scales: Sequence[float]) -> Any:
    """Return a pointer to parameters of an operand that is quantized per channel."""
    return ctypes.byref(CQuantParams(channel_dim, len(scales), (ctypes.c_float * len(scales))(*scales)))


def uint32s(*numbers: int) -> Any:
    """Return an array of uint32_t."""
    return (ctypes.c_uint32 * len(numbers))(*numbers)


def handles(*values: int | None) -> Any:
    """Return an array of handles."""
    return (ctypes.c_void_p * len(values))(*values)
