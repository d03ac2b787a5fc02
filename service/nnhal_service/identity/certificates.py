"""Identities in certificates of clients, as gRPC reports them after the handshake."""

from collections.abc import Mapping, Sequence

from nnhal_service.identity.identity import Identity

AuthContext = Mapping[str, Sequence[bytes]]
"""Properties of the other end of a connection."""

CERTIFICATE = "x509_pem_cert"
"""Property with the certificate of the client, in PEM."""
_SPIFFE_ID, _SUBJECT = "peer_spiffe_id", "x509_subject"


def certificate_identity(properties: AuthContext) -> Identity | None:
    """Return the identity in a certificate: its SPIFFE id, or else its subject. None if it has neither, or two ids.

    The handshake has verified the certificate.
    """
    ids = properties.get(_SPIFFE_ID, ())
    if len(ids) == 1:
        return Identity("spiffe", _text(ids[0]))
    subjects = properties.get(_SUBJECT, ())
    if ids or len(subjects) != 1 or not subjects[0]:
        return None
    return Identity("certificate", _text(subjects[0]))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
