"""Python functions in the form that the C library calls: with handles, and with codes in place of exceptions."""

import _thread
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nnhal_ndk.api.c_code import PYTHON_FUNCTIONS, has_results, is_created, python_parameters
from nnhal_ndk.api.functions import Function
from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.event import NdkEvent
from nnhal_ndk.execution.execution import NdkBurst, NdkExecution
from nnhal_ndk.execution.memory import NdkMemory
from nnhal_ndk.execution.memory_desc import NdkMemoryDesc
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.model.operand_type import given_type, unpack_uint32s
from nnhal_ndk.objects import OBJECTS
from nnhal_ndk.results import NdkError, code_of_error, log_error

_KINDS = {
    "Burst": NdkBurst,
    "Compilation": NdkCompilation,
    "Device": NdkDevice,
    "Event": NdkEvent,
    "Execution": NdkExecution,
    "Memory": NdkMemory,
    "MemoryDesc": NdkMemoryDesc,
    "Model": NdkModel,
}
_OPERAND_TYPE, _QUANT_PARAMS = "const ANeuralNetworksOperandType*", "const ANeuralNetworksSymmPerChannelQuantParams*"
_MEMBERS = {_OPERAND_TYPE: 4, _QUANT_PARAMS: 3}
"""Number of arguments for the members of a structure. Other parameters are one argument."""
_CONVERSIONS: Mapping[str, Callable[..., Any]] = {
    _OPERAND_TYPE: given_type,
    "bool": bool,
    "const uint32_t*": unpack_uint32s,
}
"""Functions that convert arguments, by the type of the parameter."""


def callables(table: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the functions of a table in the form that the C library calls. They never raise.

    A function of the table takes objects, bools, tuples of numbers and operands in place of handles, arrays of uint32_t
    and operand types; but handles to free. It returns the value that the C function returns through a pointer, and
    raises its errors.

    The result has the result code of a C function; or a tuple of the code and the value, if there is one, for a C
    function that returns a value through a pointer.
    """
    return {function.name: _callable(function, table[function.name]) for function in PYTHON_FUNCTIONS}


def _callable(function: Function, implementation: Callable[..., Any]) -> Callable[..., Any]:
    name, conversions, returns_value = function.name, _conversions(function), has_results(function)
    creates = any(map(is_created, function.parameters))

    def call(*arguments: Any) -> Any:
        code = 0
        values: tuple[Any, ...] = ()
        try:
            value = implementation(*_convert(arguments, conversions))
            values = (_handle_of(value) if creates else value,)
        except BaseException as error:
            code = _report(name, error)
            values = error.values if isinstance(error, NdkError) else ()
        return (code, *values) if returns_value else code

    return call


_Conversion = tuple[slice, Callable[..., Any]]
"""Arguments, and the function that converts them to one."""


def _conversions(function: Function) -> list[_Conversion]:
    conversions: list[_Conversion] = []
    position = 0
    for parameter in python_parameters(function):
        kind = _KINDS.get(parameter.type.removeprefix("const ").removeprefix("ANeuralNetworks").removesuffix("*"))
        convert = _CONVERSIONS.get(parameter.type)
        if kind is not None and not function.is_free:
            convert = partial(OBJECTS.get, kind=kind)
        members = _MEMBERS.get(parameter.type, 1)
        if convert is not None:
            conversions.append((slice(position, position + members), convert))
        position += members if convert is None else 1
    return conversions


def _convert(arguments: tuple[Any, ...], conversions: list[_Conversion]) -> list[Any]:
    values = list(arguments)
    for members, convert in conversions:
        values[members] = (convert(*values[members]),)
    return values


def _handle_of(value: object) -> int:
    """Return a handle of a new object, or the handle of a device, which it always has."""
    return value.handle if isinstance(value, NdkDevice) else OBJECTS.add(value)


def _report(name: str, error: BaseException) -> int:
    log_error(name, error)
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()  # the host in Python gets it when the call has returned
    return int(code_of_error(error))
