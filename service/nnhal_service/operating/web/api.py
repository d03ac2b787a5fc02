"""JSON API of the HTTP port, below /api/v1. docs/page.md documents it.

Its field names are those of nnhal.admin.v1; times are seconds since 1970, durations seconds, sizes bytes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from nnhal.admin.plain import to_plain
from nnhal.admin.v1 import admin_pb2
from nnhal_service.operating.admin.service_view import ServiceView
from nnhal_service.operating.web.observer import ServiceObserver

Json: TypeAlias = Any
Body: TypeAlias = Mapping[str, object]

PREFIX = "/api/v1"
MAX_BODY_BYTES = 65536
"""Largest body of an action."""
_LISTS = ("devices", "workers", "sessions", "models", "quarantine", "warnings", "members")
_TOTALS = ("at", "version", "state", "pid", "started_at", "log_level")


class BadRequestError(Exception):
    """A request is malformed. The text says why."""


class JsonApi:
    """Resources and actions of a service."""

    def __init__(self, view: ServiceView, observer: ServiceObserver) -> None:
        self._view = view
        self._observer = observer
        self.resources: Mapping[str, Callable[[Mapping[str, str]], Json]] = {
            "service": lambda query: _overview(observer.snapshot()),
            "cache": lambda query: to_plain(observer.snapshot().cache),
            "abilities": lambda query: [to_plain(ability) for ability in view.abilities()],
            "settings": lambda query: [to_plain(setting) for setting in view.settings()],
            "history": lambda query: observer.history.series(_number(query, "since")),
            **{name: partial(self._list, name) for name in _LISTS},
        }
        self.actions: Mapping[str, Callable[[str, Body], str]] = {
            "drain": lambda by, body: view.drain(by, _worker(body)),
            "resume": lambda by, body: view.resume(by, _worker(body)),
            "reload": lambda by, body: view.reload(by)[0],
            "end-session": lambda by, body: view.end_session(by, _text(body, "session")),
            "clear-quarantine": lambda by, body: view.clear_quarantine(by, _texts(body, "digests")),
            "clear-cache": lambda by, body: view.clear_cache(by, _optional(body, "identity"), _texts(body, "tokens")),
            "set-log-level": lambda by, body: view.set_log_level(by, _text(body, "level")),
        }

    def _list(self, name: str, query: Mapping[str, str]) -> Json:
        return [to_plain(element) for element in getattr(self._observer.snapshot(), name)]

    def read(self, name: str, query: Mapping[str, str]) -> Json:
        """Return a resource.

        Raises:
            KeyError: there is no such resource.
            BadRequestError: the query is invalid.
        """
        return self.resources[name](query)

    def act(self, name: str, by: str, content: bytes) -> str:
        """Carry out an action of `by` with arguments in a JSON object, and return its result in words.

        Raises:
            KeyError: there is no such action.
            BadRequestError: the arguments are invalid.
            AdminError: the action cannot be done.
        """
        action = self.actions[name]
        try:
            body = json.loads(content or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise BadRequestError("the body is not a JSON object")
        try:
            return action(by, body)
        finally:
            self._observer.forget()


def _overview(snapshot: admin_pb2.ServiceSnapshot) -> Json:
    """Return the state of the service without its lists, and how long they are."""
    return {
        **{name: getattr(snapshot, name) for name in _TOTALS},
        "addresses": list(snapshot.addresses),
        "load": to_plain(snapshot.load),
        "counts": {name: len(getattr(snapshot, name)) for name in _LISTS},
        "memory_bytes": sum(worker.memory_bytes for worker in snapshot.workers),
        "cache": {name: getattr(snapshot.cache, name) for name in ("size", "max_bytes", "hits", "misses")},
    }


def _number(query: Mapping[str, str], name: str) -> float:
    try:
        return float(query.get(name, "0"))
    except ValueError as error:
        raise BadRequestError(f"invalid {name} {query[name]!r}; expected a number of seconds") from error


def _worker(body: Body) -> int | None:
    worker = body.get("worker")
    if worker is not None and (not isinstance(worker, int) or isinstance(worker, bool)):
        raise BadRequestError(f"invalid worker {worker!r}; expected its number, or null for all workers")
    return worker


def _optional(body: Body, name: str) -> str | None:
    return None if body.get(name) is None else _text(body, name)


def _text(body: Body, name: str) -> str:
    text = body.get(name)
    if not isinstance(text, str) or not text:
        raise BadRequestError(f"invalid {name} {text!r}; expected a text")
    return text


def _texts(body: Body, name: str) -> Sequence[str]:
    texts = body.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise BadRequestError(f"invalid {name} {texts!r}; expected a list of texts")
    return texts
