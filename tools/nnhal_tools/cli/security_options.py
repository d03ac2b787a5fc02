"""Options for TLS and tokens, of each command that connects to a service.

They set the environment variables that `nnhal.connect` reads, so that other processes of a command have them, too.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

Command = TypeVar("Command", bound=Callable[..., None])


_OPTIONS: Mapping[str, tuple[type, str | None, str]] = {
    "tls": (bool, None, "Use TLS. The options below imply it."),
    "tls_ca": (Path, "FILE", "Authorities of the service. [default: public ones]"),
    "tls_server_name": (str, "NAME", "Name in its certificate. [default: the host]"),
    "client_cert": (Path, "FILE", "Certificate of the client."),
    "client_key": (Path, "FILE", "Its private key. [default: in the same file]"),
    "token_file": (Path, "FILE", "Bearer token to send with each call."),
}
"""Type, placeholder and help of each parameter."""


def _variable(name: str) -> str:
    return f"NNHAL_{name.upper()}"


def _annotation(name: str) -> Any:
    """Return the type of a parameter, with its option."""
    type_, metavar, help_ = _OPTIONS[name]
    option = f"--{name.replace('_', '-')}"
    return Annotated[
        type_ | None,
        typer.Option(
            f"{option}/--no-{name}" if type_ is bool else option,
            envvar=_variable(name),
            metavar=metavar,
            help=help_,
            rich_help_panel="TLS and tokens",
            show_envvar=False,
            show_default=False,
        ),
    ]


def with_security(command: Command) -> Command:
    """Add the options to a command. For the outermost decorator."""

    @functools.wraps(command)
    def secured_command(*args: Any, **values: Any) -> None:
        given = {_variable(name): values.pop(name, None) for name in _OPTIONS}
        with _environment({variable: str(value) for variable, value in given.items() if value is not None}):
            command(*args, **values)

    keyword, types = inspect.Parameter.KEYWORD_ONLY, {name: _annotation(name) for name in _OPTIONS}
    added = [inspect.Parameter(name, keyword, default=None, annotation=type_) for name, type_ in types.items()]
    signature = inspect.signature(command)
    secured_command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    secured_command.__annotations__ = command.__annotations__ | types
    return secured_command  # type: ignore[return-value]


def client_command(group: typer.Typer, name: str | None = None) -> Callable[[Command], Command]:
    """Add a command to a group, with the options."""
    return lambda command: group.command(name)(with_security(command))


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, text in previous.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
