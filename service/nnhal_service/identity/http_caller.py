"""Callers over HTTP: their credentials, and how the admin process passes on to a worker who they are."""

from dataclasses import dataclass
from typing import NamedTuple, cast, get_args

import grpc

from nnhal_service.identity.identity import Identity, Kind

_SPIFFE = "spiffe://"
_IDENTITY_KEY, _PEER_KEY, _USER_KEY = "nnhal-identity-bin", "nnhal-peer", "nnhal-user"


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """Credentials in a request.

    Attributes:
        authorization: header `Authorization`; "" if absent.
        certificate: certificate of the client in DER, which TLS has verified; None if it has none.
        address: host and port of the client.
    """

    authorization: str = ""
    certificate: bytes | None = None
    address: str = ""

    @property
    def context(self) -> grpc.ServicerContext:
        """Stand-in for the context of a gRPC call, for `Authentication.identify`."""
        return cast(grpc.ServicerContext, _CallerContext(self))

    @property
    def peer(self) -> str:
        """The connection, as gRPC would name it."""
        kind = "ipv6" if self.address.startswith("[") else "ipv4"
        return f"{kind}:{self.address}"


class _CallerContext:
    def __init__(self, caller: HttpCaller) -> None:
        self._caller = caller

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", self._caller.authorization)] if self._caller.authorization else []

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self._caller.certificate is None else certificate_properties(self._caller.certificate)

    def peer(self) -> str:
        return self._caller.peer


def certificate_properties(der: bytes) -> dict[str, list[bytes]]:
    """Return what gRPC reports about the certificate of a client, which is in DER."""
    from cryptography import x509  # noqa: PLC0415 - takes time, and few callers have certificates
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    certificate = x509.load_der_x509_certificate(der)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        uris = []
    return {
        "x509_pem_cert": [certificate.public_bytes(Encoding.PEM)],
        "x509_subject": [certificate.subject.rfc4514_string().encode()],
        "peer_spiffe_id": [uri.encode() for uri in uris if uri.startswith(_SPIFFE)],
    }


class IdentifiedCaller(NamedTuple):
    """Caller whom the admin process has identified.

    Attributes:
        peer: its connection, as gRPC would name it.
        user: its user, if it is one of this machine and the call needs it.
    """

    identity: Identity
    peer: str
    user: int | None = None

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Return the metadata of a call to the private socket of a worker."""
        identity = f"{self.identity.kind}:{self.identity.name}".encode("utf-8", "surrogateescape")
        user = "" if self.user is None else str(self.user)
        return ((_IDENTITY_KEY, identity), (_PEER_KEY, self.peer), (_USER_KEY, user))

    @classmethod
    def of_call(cls, context: grpc.ServicerContext) -> "IdentifiedCaller":
        """Return the caller of a call to the private socket, which only the service itself can reach."""
        metadata = dict(context.invocation_metadata())
        kind, _, name = cast(bytes, metadata[_IDENTITY_KEY]).decode("utf-8", "surrogateescape").partition(":")
        assert kind in get_args(Kind)
        user = str(metadata[_USER_KEY])
        return cls(Identity(cast(Kind, kind), name), str(metadata[_PEER_KEY]), int(user) if user else None)
