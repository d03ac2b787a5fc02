"""Handles of session objects, tied to the lifetime of the client's objects.

The service releases an object when the client's object that owns it is closed or garbage-collected.
"""

import weakref
from collections.abc import Callable, Generator
from typing import Any, NoReturn, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class AnyConnection(Protocol):
    """The part of a connection that never waits; both clients have it."""

    session: bytes
    lost: bool

    def discard(self, *handles: bytes) -> None:
        """Release objects with the next call."""


C = TypeVar("C", bound=AnyConnection)


def release_with(owner: T, release: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> "weakref.finalize[P, T]":
    """Return a finalizer that calls `release` once: when `owner` is collected or when the finalizer is called.

    It does not run at interpreter exit, because the session and all its objects end then.
    """
    finalizer = weakref.finalize(owner, release, *args, **kwargs)
    finalizer.atexit = False
    return finalizer


def description(value: object, details: str, *, closed: bool = False) -> str:
    """Return the `repr` of an object of either client, in one line."""
    package = "nnhal.aio" if ".aio." in type(value).__module__ else "nnhal"
    return f"<{package}.{type(value).__name__} {details}{', closed' * closed}>"


class ProcessBound:
    """Base of objects that belong to a connection, and cannot be sent to another process."""

    def __repr__(self) -> str:
        finalizer = getattr(self, "_finalizer", None)
        return description(self, "open" if finalizer is None or finalizer.alive else "closed")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} objects cannot be pickled or copied: they belong to a connection of this process; "
            "connect and prepare in each process, with cache=True so that the model is compiled once"
        )


class Closeable(ProcessBound):
    """Base of objects that can be closed or used as a context manager."""

    _finalizer: "weakref.finalize[Any, Any]"

    def close(self) -> None:
        """Release the object on the service. Executions in progress finish."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncCloseable(ProcessBound):
    """Base of objects that can be closed or used as an asynchronous context manager."""

    _finalizer: "weakref.finalize[Any, Any]"

    async def close(self) -> None:
        """Release the object on the service. Executions in progress finish."""
        self._finalizer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncOpenable(AsyncCloseable):
    """Base of objects that open when they are awaited, or used as an asynchronous context manager."""

    async def open(self) -> None:
        """Open the object."""
        raise NotImplementedError

    def __await__(self) -> Generator[object, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self.open()
        return self
