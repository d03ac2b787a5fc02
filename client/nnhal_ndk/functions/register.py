"""Registration of the functions that implement the C library."""

import _thread
from collections.abc import Callable
from typing import Any

from nnhal_ndk.api.c_code import PYTHON_FUNCTIONS, has_results
from nnhal_ndk.results import NdkError, code_of_error, log_error

REGISTERED: dict[str, Callable[..., Any]] = {}
"""Functions by the name of the C function. They never raise.

A C function that returns values through pointers gets a tuple: the result code, and the values in order, if there are
any. Other functions return their result code.
"""

_HAS_RESULTS = {function.name: has_results(function) for function in PYTHON_FUNCTIONS}


def ndk_function(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function for a C function.

    It returns None, or the tuple of the values that the C function returns through pointers, and raises its errors.
    """
    wrap = _returning_values if _HAS_RESULTS[name] else _returning_code

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        REGISTERED[name] = wrap(name, function)
        return function

    return register


def _returning_code(name: str, function: Callable[..., None]) -> Callable[..., int]:
    def call(*arguments: Any) -> int:
        try:
            function(*arguments)
            return 0
        except BaseException as error:
            return _report(name, error)

    return call


def _returning_values(name: str, function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    def call(*arguments: Any) -> tuple[Any, ...]:
        try:
            return 0, *function(*arguments)
        except BaseException as error:
            return _report(name, error), *(error.values if isinstance(error, NdkError) else ())

    return call


def _report(name: str, error: BaseException) -> int:
    log_error(name, error)
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()  # the host in Python gets it when the call has returned
    return int(code_of_error(error))
