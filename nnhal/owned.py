"""Objects of a session that belong to objects of the client: the service lets them go when those are closed or
collected.

Both clients use it.
"""

import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class AnyConnection(Protocol):
    """Either client's connection, as far as it need not be waited for."""

    session: bytes

    def discard(self, *handles: bytes) -> None:
        """Lets objects go with the next call."""
        ...


C = TypeVar("C", bound=AnyConnection)


def goes_with(owner: T, let_go: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> "weakref.finalize[P, T]":
    """Makes `let_go` be called with `args` when `owner` is collected, or when what this gives is called: once.

    Not when the process ends: the session, and all that is in it, ends then.
    """
    finalizer = weakref.finalize(owner, let_go, *args, **kwargs)
    finalizer.atexit = False
    return finalizer


class Owned:
    """What is closed, or used as a context manager."""

    _finalizer: "weakref.finalize[Any, Any]"

    def close(self) -> None:
        """Lets it go on the service. Executions in progress finish."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AioOwned:
    """What is closed, or used as an asynchronous context manager."""

    _finalizer: "weakref.finalize[Any, Any]"

    async def close(self) -> None:
        """As `Owned.close`."""
        self._finalizer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
