"""Ids of requests, for log lines and errors: the trace of the client, or else an id that the service makes.

Calls cost nothing for this: an id is made when a line is logged or an error is returned. The line then finds its call
among the frames of its thread. Work of a call on other threads has the call in its context (`carry`).
"""

import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType
from typing import Any, Protocol, TypeAlias, TypeVar, cast

_ID_BYTES = 6
_TRACE = "traceparent"
_TRACE_CONTEXT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

FindId: TypeAlias = Callable[[Mapping[str, Any]], str]
"""Returns the id of a request, given the local variables of the function that handles it."""
F = TypeVar("F", bound=Callable[..., Any])


class Request(Protocol):
    """A call, as far as its id needs it."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the metadata, or headers."""


_ids: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
_functions: dict[CodeType, FindId] = {}
_carried: ContextVar[Request | str | None] = ContextVar("nnhal_request", default=None)


def new_id() -> str:
    """Return an id for a request without a trace."""
    return os.urandom(_ID_BYTES).hex()


def trace_id(trace_context: str) -> str:
    """Return the id in a trace context of W3C, or "" if it is invalid."""
    match = _TRACE_CONTEXT.match(trace_context)
    return match[1] if match else ""


def request_id(request: Request) -> str:
    """Return the id of a request, which is the same each time."""
    known = _ids.get(request)
    if known is None:
        metadata = dict(request.invocation_metadata() or ())
        known = _ids[request] = trace_id(str(metadata.get(_TRACE, ""))) or new_id()
    return known


def handles_requests(find: FindId) -> Callable[[F], F]:
    """Decorate a function that handles a request: lines that are logged below it have the id of the request.

    While it has an exception in a variable, it must `carry` the request. Otherwise, the copy of its variables would
    have the exception, whose traceback has the frame, and so keep all objects of the call until garbage is collected.
    """

    def mark(function: F) -> F:
        _functions[cast(FunctionType, function).__code__] = find
        return function

    return mark


def current_id() -> str:
    """Return the id of the request that this thread works for, or ""."""
    if (carried := _carried.get()) is not None:
        return carried if isinstance(carried, str) else request_id(carried)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if (find := _functions.get(frame.f_code)) is not None:
            return find(frame.f_locals)  # the frame keeps this copy of its variables
        frame = frame.f_back
    return ""


@contextmanager
def carry(request: Request | str) -> Iterator[None]:
    """Have the context name a request, or its id. Threads that work for the request run in a copy of the context."""
    token = _carried.set(request)
    try:
        yield
    finally:
        _carried.reset(token)
