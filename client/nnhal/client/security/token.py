"""Bearer tokens: sent with each call as the header `authorization`."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from nnhal.errors import argument_error

Metadata: TypeAlias = tuple[tuple[str, str], ...]
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""Syntax of bearer tokens, RFC 6750."""


def metadata_of(token: str) -> Metadata:
    """Return the metadata of a call with a token.

    Raises:
        HalError: INVALID_ARGUMENT: it cannot be a token. The message has nothing of it.
    """
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise argument_error("the token has characters that bearer tokens cannot have, or is empty")
    return (("authorization", f"Bearer {token}"),)


class TokenFileReader:
    """Token in a file that may be replaced, for example by Kubernetes. Thread safe.

    Args:
        path: the file; white space around the token is ignored.
    """

    REFRESH_S = 1.0
    """Seconds after which the file is read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._token = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        """Return the token. While the file is unreadable, it is the previous one.

        Raises:
            HalError: INVALID_ARGUMENT: the file has never been readable.
        """
        with self._lock:
            if time.monotonic() - self._read_at >= self.REFRESH_S:
                try:
                    self._token = self._path.read_text("utf-8").strip() or self._token
                except (OSError, ValueError) as error:
                    if not self._token:
                        reason = (getattr(error, "strerror", None) or "it is not text").lower()
                        raise argument_error(f"cannot read the token in {self._path}: {reason}") from None
                self._read_at = time.monotonic()
            return self._token


class AuthorizedChannel:
    """Channel whose calls carry a token, synchronous or of asyncio. Has the methods that stubs use.

    Interceptors of gRPC would do the same, but make each call of asyncio a task of its own.
    """

    def __init__(self, channel: Any, metadata: Callable[[], Metadata]) -> None:
        def authorized(open_method: Callable[..., Any], *args: Any, **options: Any) -> AuthorizedMethod:
            return AuthorizedMethod(open_method(*args, **options), metadata)

        self.close = channel.close
        self.unary_unary = partial(authorized, channel.unary_unary)
        self.unary_stream = partial(authorized, channel.unary_stream)
        self.stream_unary = partial(authorized, channel.stream_unary)
        self.stream_stream = partial(authorized, channel.stream_stream)


class AuthorizedMethod:
    """Method of a service whose calls carry a token."""

    __slots__ = ("_metadata", "method")

    def __init__(self, method: Callable[..., Any], metadata: Callable[[], Metadata]) -> None:
        self.method = method
        self._metadata = metadata

    def __call__(self, *args: Any, metadata: Sequence[tuple[str, str]] = (), **options: Any) -> Any:
        """Make a call."""
        method, metadata = self.authorize(metadata)
        return method(*args, metadata=metadata, **options)

    def authorize(self, metadata: Sequence[tuple[str, str]]) -> tuple[Callable[..., Any], Sequence[tuple[str, str]]]:
        """Return the method of the channel, and the metadata of a call of it."""
        return self.method, (*metadata, *self._metadata())
