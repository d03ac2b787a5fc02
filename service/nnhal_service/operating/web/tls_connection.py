"""TLS of the HTTP port: its context, and the handshake of each connection, which is bounded and recorded."""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from nnhal_service.tls.certificates import Certificates
    from nnhal_service.tls.reloading import ReloadingCertificates

HANDSHAKE_S = 5.0
_PROTOCOLS = ["http/1.1"]


class TlsConnection(asyncio.Protocol):
    """Connection until the end of its handshake. Then another protocol goes on with it.

    asyncio can do the handshake when it accepts a connection, but does not tell of failures then.

    Args:
        protocol: the protocol after the handshake.
        failed: called with the address of a client and the error of its handshake.
    """

    def __init__(self, protocol: asyncio.Protocol, context: ssl.SSLContext, failed: Callable[[str, str], None]) -> None:
        self._protocol = protocol
        self._context = context
        self._failed = failed
        self._early = b""
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, which reads from now on."""
        transport = cast(asyncio.Transport, transport)
        transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._begin(transport))

    async def _begin(self, transport: asyncio.Transport) -> None:
        address = transport.get_extra_info("peername")  # None if the connection has been reset already
        start_tls = asyncio.get_running_loop().start_tls
        try:
            encrypted = await start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:
            self._failed(_peer(*address) if address else "", f"{type(error).__name__}: {error}")
            return
        if encrypted is None:  # it was closed after the handshake
            return
        self._is_open = True
        encrypted.set_protocol(self._protocol)
        self._protocol.connection_made(encrypted)
        if self._early:
            self._protocol.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        """Keep data that came with the end of the handshake."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on an end that was noticed before the other protocol took over."""
        if self._is_open:
            self._protocol.connection_lost(exc)


def _peer(host: str, port: int, *_: int) -> str:
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def create_tls_context(certificates: "ReloadingCertificates") -> ssl.SSLContext:
    """Return a context that uses the latest certificates for each handshake.

    Clients may present a certificate, and need none: the page also takes tokens. An invalid one ends the handshake.
    """
    used = certificates.current
    latest = _context(used)

    def choose(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal used, latest
        certificates.refresh()
        if (current := certificates.current) != used:
            used, latest = current, _context(current)
        connection.context = latest

    outer = _context(used)
    outer.sni_callback = choose
    return outer


def _context(certificates: "Certificates") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)
    file = os.memfd_create("nnhal-tls")  # the module ssl takes files only, and a key must not reach a disk
    try:
        os.write(file, certificates.key + b"\n" + certificates.chain)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    if certificates.client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=certificates.client_ca.decode("ascii", "replace"))
    return context
