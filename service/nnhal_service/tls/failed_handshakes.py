"""Record of the TLS handshakes of clients that failed, by port and reason."""

import re
from collections.abc import Callable
from functools import partial

from nnhal_service.failed_attempts import FailedAttempts
from nnhal_service.metrics import catalog

_REASONS = (
    ("not_tls", "HTTP_REQUEST|HTTPS_PROXY_REQUEST|WRONG_VERSION_NUMBER", "the client does not use TLS"),
    ("version", "UNSUPPORTED_PROTOCOL|VERSION_TOO_LOW", "the client has no version of TLS in common with the service"),
    ("no_certificate", "PEER_DID_NOT_RETURN_A_CERTIFICATE", "the client has no certificate"),
    ("expired", "CERTIFICATE_VERIFY_FAILED.*expired", "the certificate of the client has expired"),
    ("untrusted", "CERTIFICATE_VERIFY_FAILED", "the certificate of the client is not valid"),
    # in TLS 1.3, OpenSSL sends its alert in plaintext, which BoringSSL cannot decrypt
    ("rejected", "ALERT|BAD_PACKET_LENGTH", "the client does not accept the certificate of the service"),
    ("timeout", "taking longer|Endpoint closing", "the client did not finish the handshake in time"),
    ("closed", "Connection|Socket closed|UNEXPECTED_EOF|read failed|write failed", "the client closed the connection"),
    ("other", "", ""),
)
"""Labels, with what the texts of OpenSSL, asyncio and gRPC contain, and a description. The first match counts."""


class FailedHandshakes:
    """Record of one port.

    Args:
        port: "grpc", "http" or "admin".
        count: counts an event, by its metric, labels and amount.
    """

    def __init__(self, port: str, count: Callable[..., None]) -> None:
        self._port = port
        self._failures = FailedAttempts("handshake", partial(count, catalog.TLS_FAILURES, port))
        for reason, *_ in _REASONS:  # else the first one would not be an increase
            count(catalog.TLS_FAILURES, port, reason, amount=0)

    def note(self, peer: str, error: str) -> None:
        """Record a failure: the address of the client, as gRPC names it, and the text of a library."""
        reason, _, why = next(row for row in _REASONS if re.search(row[1], error))
        self._failures.note(peer, f"{why or error} ({self._port} port)", reason)
