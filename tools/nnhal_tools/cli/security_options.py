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


def _option(name: str, variable: str, metavar: str | None, help_: str) -> Any:
    return typer.Option(
        name,
        envvar=variable,
        metavar=metavar,
        help=help_,
        rich_help_panel="TLS and tokens",
        show_envvar=False,
        show_default=False,
    )


_OPTIONS: Mapping[str, tuple[str, Any]] = {
    "tls": (
        "NNHAL_TLS",
        Annotated[bool | None, _option("--tls/--no-tls", "NNHAL_TLS", None, "Use TLS. The options below imply it.")],
    ),
    "tls_ca": (
        "NNHAL_TLS_CA",
        Annotated[
            Path | None,
            _option("--tls-ca", "NNHAL_TLS_CA", "FILE", "Authorities of the service. [default: public ones]"),
        ],
    ),
    "tls_server_name": (
        "NNHAL_TLS_SERVER_NAME",
        Annotated[
            str | None,
            _option(
                "--tls-server-name", "NNHAL_TLS_SERVER_NAME", "NAME", "Name in its certificate. [default: the host]"
            ),
        ],
    ),
    "client_cert": (
        "NNHAL_CLIENT_CERT",
        Annotated[Path | None, _option("--client-cert", "NNHAL_CLIENT_CERT", "FILE", "Certificate of the client.")],
    ),
    "client_key": (
        "NNHAL_CLIENT_KEY",
        Annotated[
            Path | None,
            _option("--client-key", "NNHAL_CLIENT_KEY", "FILE", "Its private key. [default: in the same file]"),
        ],
    ),
    "token_file": (
        "NNHAL_TOKEN_FILE",
        Annotated[
            Path | None, _option("--token-file", "NNHAL_TOKEN_FILE", "FILE", "Bearer token to send with each call.")
        ],
    ),
}
"""Variable and type of each parameter."""


def with_security(command: Command) -> Command:
    """Add the options to a command. For the outermost decorator."""

    @functools.wraps(command)
    def secured_command(*args: Any, **values: Any) -> None:
        given = {_OPTIONS[name][0]: values.pop(name, None) for name in _OPTIONS}
        with _environment({variable: str(value) for variable, value in given.items() if value is not None}):
            command(*args, **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, keyword, default=None, annotation=type_) for name, (_, type_) in _OPTIONS.items()]
    signature = inspect.signature(command)
    secured_command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    secured_command.__annotations__ = command.__annotations__ | {name: type_ for name, (_, type_) in _OPTIONS.items()}
    return secured_command  # type: ignore[return-value]


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
