"""TLS context of the HTTP port. It follows the files of the certificates, like the gRPC port."""

import os
import ssl

from nnhal_service.tls.certificates import Certificates
from nnhal_service.tls.reloading import ReloadingCertificates

_PROTOCOLS = ["http/1.1"]


def create_tls_context(certificates: ReloadingCertificates) -> ssl.SSLContext:
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


def _context(certificates: Certificates) -> ssl.SSLContext:
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
