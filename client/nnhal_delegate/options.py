"""Options of a delegate: texts, as LiteRT passes them, and their values."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nnhal.client.core.arguments import enum_value
from nnhal.client.security.token import TokenFileReader
from nnhal.errors import invalid_argument
from nnhal.types import ExecutionPreference, Priority

_LEVELS = ("error", "warning", "info", "debug")


def _choice(text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"expected {', '.join(choices)}")
    return text


def _flag(text: str) -> bool:
    return _choice(text.lower(), ("true", "false", "1", "0")) in ("true", "1")


def _positive(text: str) -> float:
    if not (number := float(text)) > 0:
        raise ValueError("expected a positive number")
    return number


_CONNECTION: Mapping[str, Callable[[str], Any]] = {
    "target": str,
    "device": str,
    "timeout": _positive,
    "transport": partial(_choice, choices=("auto", "grpc")),
    "tls": _flag,
    "ca": Path,
    "cert": Path,
    "key": Path,
    "server_name": str,
    "token": str,
}
"""Options of `nnhal.connect`."""
_OWN: Mapping[str, Callable[[str], Any]] = {
    "token_file": lambda text: TokenFileReader(Path(text)),
    "cache": _flag,
    "preference": lambda text: enum_value(ExecutionPreference, text),
    "priority": lambda text: enum_value(Priority, text),
    "deadline_ms": _positive,
    "fallback": partial(_choice, choices=("error", "litert")),
    "profile": Path,
    "log": partial(_choice, choices=_LEVELS),
}
_CONVERSIONS = {**_CONNECTION, **_OWN}
_VARIABLES = {"target": "NNHAL_TARGET", "log": "NNHAL_DELEGATE_LOG"}
"""Environment variables in place of options."""


@dataclass(frozen=True, slots=True)
class DelegateOptions:
    """Options of a delegate.

    Attributes:
        connection: options of `nnhal.connect`.
        preparation: options of `Device.prepare`.
        deadline: seconds for each execution, or None.
        falls_back: whether nodes run on this machine if the device is gone.
        profile: file for a trace of all executions, or None.
        log: lowest level of messages on the standard error.
    """

    connection: Mapping[str, Any]
    preparation: Mapping[str, Any]
    deadline: float | None
    falls_back: bool
    profile: Path | None
    log: str


def parse_options(texts: Mapping[str, str]) -> DelegateOptions:
    """Return the options of a delegate. Environment variables replace some that are absent.

    Raises:
        HalError: INVALID_ARGUMENT: an option is unknown, or its value is invalid.
    """
    defaults = {name: os.environ[variable] for name, variable in _VARIABLES.items() if os.environ.get(variable)}
    values = {name: _convert(name, text) for name, text in (defaults | dict(texts)).items()}
    connection = {"target": None, **{name: value for name, value in values.items() if name in _CONNECTION}}
    if "token_file" in values:
        connection["token"] = values["token_file"]
    preparation = {"cache": True}
    preparation.update((name, values[name]) for name in ("cache", "preference", "priority") if name in values)
    return DelegateOptions(
        connection,
        preparation,
        values["deadline_ms"] / 1e3 if "deadline_ms" in values else None,
        values.get("fallback") == "litert",
        values.get("profile"),
        values.get("log", "warning"),
    )


def _convert(name: str, text: str) -> Any:
    if name not in _CONVERSIONS:
        raise invalid_argument(f"unknown option {name!r}; there are {', '.join(sorted(_CONVERSIONS))}")
    try:
        return _CONVERSIONS[name](text)
    except ValueError as error:
        raise invalid_argument(f"invalid value of option {name}={text!r}: {error}") from None
