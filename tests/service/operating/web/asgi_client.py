"""Requests to an application without a server."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class AsgiResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    application: ASGIApp,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    certificate: bytes | None = None,
) -> AsgiResponse:
    """Send a request and return the response. An error of the application is a response too, as with a server."""
    path, _, query = path.partition("?")
    sent = {"host": "127.0.0.1:8080", **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
        "state": {"client_certificate": certificate},
    }
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    async def run() -> None:
        try:
            await application(scope, receive, send)
        except Exception:
            if not messages:
                raise

    asyncio.run(run())
    start, *bodies = messages
    received = {name.decode(): value.decode() for name, value in start["headers"]}
    return AsgiResponse(start["status"], received, b"".join(message["body"] for message in bodies))
