"""Reasons why a TLS connection fails, in words: from gRPC's message, or else from an attempt with Python's own TLS."""

import re
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from nnhal.address import Address
from nnhal.client.security.credentials import ClientCertificates
from nnhal.client.security.validity import end_of_validity

TIMEOUT_S = 0.5
"""Seconds that each step of an attempt may take."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""First bytes of a client of HTTP/2, with empty settings."""


@dataclass(frozen=True, slots=True)
class TlsReason:
    """Reason of a failure.

    Attributes:
        text: the reason in words.
        is_certain: another attempt would fail too. Otherwise, a service that ends may look the same.
    """

    text: str
    is_certain: bool = True


def tls_problem(target: str, expected: str, certificates: ClientCertificates | None, details: str) -> TlsReason | None:
    """Return why a channel with TLS could not connect; None if the reason is not TLS.

    Args:
        target: HOST:PORT.
        expected: name that the certificate of the service must have.
        certificates: those of the client; None if they are unknown.
        details: gRPC's message.
    """
    if found := re.search(r"CERTIFICATE_VERIFY_FAILED: ([^:]*)", details):
        return TlsReason(f"the certificate of the service {_untrusted(found[1].strip())}")
    if "Hostname Verification Check failed" in details:
        names = _names(target, certificates)
        meant = f"is for {names}, not for {expected}" if names else f"is not for {expected}"
        return TlsReason(f"the certificate of the service {meant} (server_name)")
    if "WRONG_VERSION_NUMBER" in details:
        return TlsReason("the service does not use TLS; connect without it")
    try:
        with _connect(target, expected, certificates) as connection:
            connection.sendall(_HTTP2_PREFACE)
            is_closed = connection.recv(1) == b""
    except (ssl.SSLError, ConnectionResetError):
        is_closed = True
    except OSError:
        is_closed = False
    return _refusal(certificates) if is_closed else None


def plaintext_problem(target: str) -> TlsReason | None:
    """Return why a channel without TLS could not connect; None if the reason is not that the service uses TLS."""
    try:
        _connect(target, "", None).close()
    except OSError:
        return None
    return TlsReason(
        "the service uses TLS; connect with tls=True (--tls), or with the ca that has signed its certificate (--tls-ca)"
    )


def _untrusted(reason: str) -> str:
    """Return the meaning of a reason of OpenSSL."""
    if "expired" in reason:
        return "has expired"
    if "not yet valid" in reason:
        return "is not valid yet"
    if any(word in reason for word in ("issuer", "self", "signature")):
        return f"is not signed by an authority that the client trusts (ca): {reason}"
    return f"cannot be trusted: {reason}"


def _refusal(certificates: ClientCertificates | None) -> TlsReason:
    """Return the probable reason for which a service ends connections during the handshake. gRPC sends no alert."""
    if certificates is None:
        text = "the service ended the handshake; does it require a certificate of the client, or another one?"
    elif certificates.cert is None:
        text = "the service ended the handshake; it probably requires a certificate of the client (cert, key)"
    elif (end := end_of_validity(certificates.cert)) is not None and end < time.time():
        text = f"the service ended the handshake; the certificate of the client has expired on {_date(end)} (cert)"
    else:
        text = (
            "the service ended the handshake; it probably does not accept the certificate of the client (cert): "
            "has one of its authorities (tls_client_ca) signed it?"
        )
    return TlsReason(text, is_certain=False)


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _names(target: str, certificates: ClientCertificates | None) -> str:
    """Return the names in the certificate of a service, or "" if they are unknown."""
    if certificates is None:
        return ""
    try:
        with _connect(target, "", certificates, verified=True) as connection:
            certificate = connection.getpeercert() or {}
    except OSError:
        return ""
    names = certificate.get("subjectAltName", ())
    return ", ".join(str(name[1]) for name in names)


def _connect(
    target: str, expected: str, certificates: ClientCertificates | None, *, verified: bool = False
) -> ssl.SSLSocket:
    """Connect with TLS, with the certificate of the client if it is known."""
    address = Address.parse(target)
    context = (certificates or ClientCertificates(None, None, None)).context()
    if not verified:
        context.verify_mode = ssl.CERT_NONE
    plain = socket.create_connection((address.host, address.port), TIMEOUT_S)
    try:
        return context.wrap_socket(plain, server_hostname=expected or address.host)
    except BaseException:
        plain.close()
        raise
