"""HTTP server: uvicorn on a socket of ours, in a thread."""

import asyncio
import socket
import ssl
import threading
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

_FIRST_REQUEST_S = 10.0
"""Seconds in which a new connection must have sent its first request."""
_KEEP_ALIVE_S = 15
_MAX_CONNECTIONS = 256
_MAX_HEADER_BYTES = 16384
_STOP_S = 2


class HttpServer:
    """HTTP server on one socket.

    Args:
        listener: the listening socket, which remains the caller's. Connections wait there until the start.
        tls: context of the server; None for HTTP without TLS.
    """

    def __init__(self, application: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._socket = listener.dup()
        config = Config(
            application,
            http=_Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        )
        config.load()
        config.ssl = tls
        self._server = Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the requests in progress within 2 s, and end the thread. May be called more than once."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


class _Connection(H11Protocol):
    """Connection that ends if it does not send a request, and whose requests know the certificate of the client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self.app_state: dict[str, Any] = {**self.app_state, "client_certificate": certificate}
        self._first_request = self.loop.call_later(_FIRST_REQUEST_S, self._close_idle)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._first_request.cancel()
        super().connection_lost(exc)

    def _close_idle(self) -> None:
        if self.cycle is None:
            self.transport.close()
