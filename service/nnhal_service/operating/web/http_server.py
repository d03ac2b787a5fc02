"""HTTP server: uvicorn on a socket of ours, in a thread."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from nnhal_service.log import RepeatedEvent

_REQUEST_S = 5.0
"""Seconds for a request: from the start of the connection, or from its first bytes."""
_KEEP_ALIVE_S = 15
_MAX_CONNECTIONS = 512
_MAX_OF_HOST = 256
"""Number of connections of one host, which may be a gateway. Each further one ends the oldest that waits for its
client, perhaps with a request that is on its way.
"""
_MAX_HEADER_BYTES = 16384
_STOP_S = 2
_ENDED = RepeatedEvent("http-connection-ended")


class HttpServer:
    """HTTP server on one socket.

    Args:
        listener: the listening socket, which remains the caller's. Connections wait there until the start.
        add_tls: returns the protocol of a connection with TLS, which hands over to that for HTTP; None without TLS.
    """

    def __init__(
        self,
        application: ASGIApp,
        listener: socket.socket,
        add_tls: Callable[[asyncio.Protocol], asyncio.Protocol] | None = None,
    ) -> None:
        def create_connection(**options: Any) -> asyncio.Protocol:
            connection = _Connection(**options)
            return connection if add_tls is None else add_tls(connection)

        self._socket = listener.dup()
        config = Config(
            application,
            http=create_connection,  # type: ignore[arg-type] # it is only called
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
        self._server = Server(config)
        self._thread = threading.Thread(target=self._run, name="nnhal-http", daemon=True)

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
        with asyncio.Runner() as runner:
            runner.run(self._server.serve(sockets=[self._socket]))


class _Connection(H11Protocol):
    """Connection that ends if a request takes too long, and whose requests know the certificate of the client.

    Those that wait for their clients also end when there are too many, so that neither silent nor slow clients keep
    others out.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self.app_state: dict[str, Any] = {**self.app_state, "client_certificate": certificate}
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self._limit_time()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_time()

    @property
    def host(self) -> str:
        """Address of the client's host."""
        return self.client[0] if self.client else ""

    @property
    def _is_receiving(self) -> bool:
        """True if there is no request, or an incomplete one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def waits_for_client(self) -> bool:
        """True if the client has to send or to read something."""
        return self._is_receiving or self.flow.write_paused

    def _limit_time(self) -> None:
        if not self._is_receiving:
            self._cancel_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(_REQUEST_S, self.transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self) -> None:
        """End the oldest connection, if this host or all hosts together have too many: one that waits for its client.

        If a host that has the most connections has none that waits, others need not: it loses one that works.
        """
        open_connections = [each for each in self.connections if isinstance(each, _Connection)]
        hosts = Counter(each.host for each in open_connections)
        if hosts[self.host] > _MAX_OF_HOST:
            full = self.host
        elif len(open_connections) >= _MAX_CONNECTIONS:
            full = hosts.most_common(1)[0][0]
        else:
            return
        of_host = [each for each in open_connections if each.host == full]
        waiting = [each for each in of_host if each.waits_for_client]
        candidates = waiting or ([self] if full == self.host else of_host)
        oldest = min(candidates, key=lambda each: each.opened_at)
        self.connections.discard(oldest)
        oldest.transport.abort()
        _ENDED.log(host=full)
