"""Protection of the HTTP port against other sites in the same browser, and of the page against injected content.

A site can make a browser send requests to a service on its machine. It cannot read responses, because no response
allows it (there is no CORS). `Protection` closes the other ways: names that a site points at this machine (DNS
rebinding), and requests that change something.
"""

import socket
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nnhal_service.tcp_port import is_ip

REQUEST_HEADER = "x-nnhal-request"
"""Header that requests which change something must have. Pages of other sites cannot send it."""
HEALTH_PATHS = frozenset({"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"})
"""Paths that anything may read under any host name: probes use whatever name they know."""
OPEN_PREFIX = "/v2/"
"""Paths of clients that are programs, whose requests have no such header. Browsers say where a request comes from."""
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect")),
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
    )
)
_HEADERS = {
    "content-security-policy": _CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Protection:
    """Middleware that refuses requests of other sites, and adds headers to all responses.

    Args:
        hosts: host names that clients may use. IP addresses, localhost and the name of this machine are always allowed,
            because no site can point them elsewhere. None allows every name: with TLS, the certificate decides.
    """

    def __init__(self, application: ASGIApp, hosts: Collection[str] | None = ()) -> None:
        self._application = application
        own = {"localhost", socket.gethostname().lower()}
        self._hosts = None if hosts is None else own | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        if scope["path"] not in HEALTH_PATHS and not self._knows(headers.get("host", "")):
            error = f"unknown host {headers.get('host', '')!r}; allow it with --http-host"
            await JSONResponse({"error": error}, 421)(scope, receive, send_protected)
        elif scope["method"] not in _SAFE_METHODS and (fault := _fault(scope["path"], headers)):
            await JSONResponse({"error": fault}, 403)(scope, receive, send_protected)
        else:
            await self._application(scope, receive, send_protected)

    def _knows(self, host: str) -> bool:
        name = _host_name(host)
        return self._hosts is None or name in self._hosts or is_ip(name)


def _fault(path: str, headers: Headers) -> str:
    """Return why a request that changes something may come from another site, or ""."""
    if not path.startswith(OPEN_PREFIX):
        if headers.get(REQUEST_HEADER) is None:
            return f"requests that change something need the header {REQUEST_HEADER}"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return "requests that change something need the content type application/json"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "the request comes from another site"
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        return f"the request comes from another origin, {origin}"
    return ""


def _host_name(host: str) -> str:
    """Return the lower-case host in a Host header: without port, and without brackets around an IPv6 address."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
