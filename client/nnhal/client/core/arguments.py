"""Checks and conversions of the arguments of public functions."""

import importlib
import os
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, cast

from nnhal.address import target_address
from nnhal.errors import argument_error
from nnhal.types import Model

ModelSource: TypeAlias = Model | str | os.PathLike[str] | bytes | bytearray
"""A model, or the path or the contents of a .tflite file."""
InputShapes: TypeAlias = Mapping[str, Sequence[int | None]]
"""Shapes of inputs by name, in place of those of the file. None is an unknown dimension."""

_TRANSPORTS = ("auto", "grpc")


def type_error(name: str, value: object, expected: str) -> TypeError:
    """Return the error of an argument of a wrong type."""
    text = repr(value)
    shown = f"{text} ({type(value).__name__})" if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"
    return TypeError(f"{name} is {shown}; expected {expected}")


def check_connect(target: object, device: object, timeout: object, transport: object, client_name: object) -> None:
    """Check the arguments of `connect`.

    Raises:
        TypeError: an argument has a wrong type.
        HalError: INVALID_ARGUMENT: the target is not an address, the timeout is not positive, or the transport is
            unknown.
    """
    if target is not None:
        if not isinstance(target, str):
            raise type_error("target", target, "an address such as 'localhost:50051' or 'unix:PATH', or None")
        try:
            target_address(target)
        except ValueError as error:
            raise argument_error(str(error)) from None
    if not isinstance(device, str):
        raise type_error("device", device, "the name of a device")
    if not isinstance(client_name, str):
        raise type_error("client_name", client_name, "a text for the log of the service")
    if not isinstance(timeout, int | float):
        raise type_error("timeout", timeout, "a number of seconds")
    if not 0 < timeout < float("inf"):
        raise argument_error(f"timeout is {timeout}; expected a positive number of seconds")
    if transport not in _TRANSPORTS:
        raise argument_error(f"transport is {transport!r}; expected one of {', '.join(map(repr, _TRANSPORTS))}")


def import_model(source: object, signature: str | None = None, shapes: InputShapes | None = None) -> Model:
    """Return the model of a .tflite file, or that of one of its signatures.

    Raises:
        TypeError: the first argument is neither a path nor bytes; a model has its signature and its shapes.
        TfliteError: the file is damaged, or NNAPI does not support a part of it.
        OSError: the file cannot be opened.
    """
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        chosen = {"a signature": signature, "shapes": shapes}
        choices = " and ".join(name for name, value in chosen.items() if value is not None)
        expected = "the path or the bytes of a .tflite file"
        raise type_error(
            "model", source, f"{expected}, to choose {choices}" if choices else f"a nnhal.Model, or {expected}"
        )
    tflite = importlib.import_module("nnhal.tflite")
    read = tflite.load if isinstance(source, str | os.PathLike) else tflite.parse
    return cast(Model, read(source, signature=signature, shapes=shapes))


def nanoseconds(seconds: float, name: str = "deadline") -> int:
    """Convert seconds.

    Raises:
        TypeError: the value is not a number.
        HalError: INVALID_ARGUMENT: it is infinite or not a number.
    """
    try:
        return int(seconds * 1e9)
    except TypeError:
        raise type_error(name, seconds, "a number of seconds") from None
    except (OverflowError, ValueError):
        raise argument_error(f"{name} is {seconds}; expected a number of seconds") from None


def optional_nanoseconds(seconds: float | None, name: str = "deadline") -> int | None:
    """Convert seconds to an optional field of a message, like `nanoseconds`."""
    return None if seconds is None else nanoseconds(seconds, name)


def enum_value(kind: type[IntEnum], value: int | str) -> int:
    """Return the number of a member of an enumeration, given by number or name. Numbers are not checked.

    Raises:
        TypeError: the value is neither.
        HalError: INVALID_ARGUMENT: there is no such name.
    """
    members: dict[str, Any] = dict(kind.__members__)
    names = ", ".join(members)
    if isinstance(value, str):
        member = members.get(value.upper().replace("-", "_"))
        if member is None:
            raise argument_error(f"unknown {kind.__name__} {value!r}; expected one of {names}")
        return int(member)
    if not isinstance(value, int):
        raise type_error(kind.__name__, value, f"one of {names}")
    return value
