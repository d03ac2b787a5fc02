"""Options of `connect` for TLS and tokens, and the environment variables in their place."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

import grpc

from nnhal.address import SECURE_SCHEME, Address
from nnhal.client.security.token import TokenFileReader
from nnhal.errors import argument_error

PemSource: TypeAlias = str | os.PathLike[str] | bytes
"""Path of a file in PEM, or its contents."""
TokenSource: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns the current one. It is called for each call, so it should remember its result."""


class SecurityOptions(TypedDict):
    """Options of `connect`, as they are given.

    Attributes:
        credentials: credentials of gRPC; they replace the others except the token and the name.
        tls: whether to use TLS; None: if another option needs it.
        ca: authorities of the service; None for those of gRPC.
        cert: certificate of the client.
        key: its private key; None if it is in `cert`.
        server_name: name in the certificate of the service; "" for the host of the address.
        token: sent as a bearer token with each call.
    """

    credentials: grpc.ChannelCredentials | None
    tls: bool | None
    ca: PemSource | None
    cert: PemSource | None
    key: PemSource | None
    server_name: str
    token: TokenSource | None


NO_OPTIONS = SecurityOptions(credentials=None, tls=None, ca=None, cert=None, key=None, server_name="", token=None)
_PEM_TYPES = (str, os.PathLike, bytes)
_ENVIRONMENT_FREE: tuple[Literal["credentials", "ca", "cert", "key", "server_name"], ...]
_ENVIRONMENT_FREE = ("credentials", "ca", "cert", "key", "server_name")
"""Options without which environment variables for TLS count."""
_TLS_OPTIONS: tuple[Literal["ca", "cert", "key"], ...] = ("ca", "cert", "key")


def split_target(target: str | None) -> tuple[str | None, bool]:
    """Return the address in a target, and whether it asks for TLS."""
    if isinstance(target, str) and target.startswith(SECURE_SCHEME):
        return target.removeprefix(SECURE_SCHEME).rstrip("/"), True
    return target, False


def check_options(target: str | None, options: SecurityOptions) -> None:
    """Check the types of options, and that they go together. The target has no scheme; None to start a service.

    Raises:
        TypeError: an option has a wrong type.
        HalError: INVALID_ARGUMENT: options contradict each other or the address.
    """
    _check_types(options)
    given = [name for name, value in options.items() if value not in (None, "", False)]
    of_tls: list[str] = [name for name in _TLS_OPTIONS if options[name] is not None]
    if options["key"] is not None and options["cert"] is None:
        raise argument_error("key is given without cert; a private key needs its certificate")
    if options["credentials"] is not None and (of_tls or options["tls"] is not None):
        name = of_tls[0] if of_tls else "tls"
        raise argument_error(f"credentials and {name} are given; expected one of them")
    if options["tls"] is False and (of_tls or options["server_name"]):
        raise argument_error(f"{(of_tls or ['server_name'])[0]} is given, but tls is False")
    if target is None and given:
        raise argument_error(f"{given[0]} is given without a target; `connect` starts a service that needs none")
    if target is not None and Address.parse(target).kind == "unix":
        of_tls += [name for name in given if name in ("tls", "server_name")]
        if of_tls:
            raise argument_error(f"{of_tls[0]} is given for {target}; Unix sockets do not use TLS")


def _check_types(options: SecurityOptions) -> None:
    """Check the types. Messages have no values, because some are secret."""
    expected = {
        "credentials": (grpc.ChannelCredentials, "grpc.ChannelCredentials"),
        "tls": (bool, "True or False"),
        "ca": (_PEM_TYPES, "a path, or bytes in PEM"),
        "cert": (_PEM_TYPES, "a path, or bytes in PEM"),
        "key": (_PEM_TYPES, "a path, or bytes in PEM"),
        "server_name": (str, "the name in the certificate of the service"),
        "token": ((str, Callable), "a text, or a function without arguments"),
    }
    values: dict[str, object] = {**options}
    for name, (types, text) in expected.items():
        if values[name] is not None and not isinstance(values[name], types):  # type: ignore[arg-type]
            raise TypeError(f"{name} is a {type(values[name]).__name__}; expected {text}")


def with_environment(target: str | None, options: SecurityOptions) -> SecurityOptions:
    """Return options with the values of environment variables where nothing is given. See docs/security.md.

    Variables for TLS count for TCP addresses, if no option but `tls` concerns TLS; those for tokens for all services,
    except those that the client starts.

    Raises:
        HalError: INVALID_ARGUMENT: a variable is invalid.
    """
    if target is None:
        return options
    result = options.copy()
    is_open = options["tls"] is not False and all(options[name] in (None, "") for name in _ENVIRONMENT_FREE)
    if Address.parse(target).kind == "tcp" and is_open:
        result["tls"] = options["tls"] or _flag("NNHAL_TLS")
        result["ca"] = _path("NNHAL_TLS_CA")
        result["cert"], result["key"] = _path("NNHAL_CLIENT_CERT"), _path("NNHAL_CLIENT_KEY")
        result["server_name"] = os.environ.get("NNHAL_TLS_SERVER_NAME", "")
    if options["token"] is None:
        if path := _path("NNHAL_TOKEN_FILE"):
            result["token"] = TokenFileReader(path)
        else:
            result["token"] = os.environ.get("NNHAL_TOKEN") or None
    return result


def _path(variable: str) -> Path | None:
    text = os.environ.get(variable)
    return Path(text) if text else None


def _flag(variable: str) -> bool | None:
    text = os.environ.get(variable, "").lower()
    if text not in ("", "0", "1", "false", "true"):
        raise argument_error(f"invalid {variable}={text!r}; expected true or false")
    return text in ("1", "true") if text else None
