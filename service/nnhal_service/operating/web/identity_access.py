"""Rights of HTTP callers by the identities and the policy of the service."""

from typing import cast

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from nnhal.errors import HalError
from nnhal_service.identity.authentication import Authentication
from nnhal_service.operating.web.http_access import CallerRights, HttpCaller, UnauthenticatedError

_SPIFFE = "spiffe://"


def find_rights(authentication: Authentication, caller: HttpCaller) -> CallerRights:
    """Return the rights of a caller with the credentials of clients: a bearer token, a certificate, or its user.

    The state shows all identities. So a caller needs the right `observe` or the right `administer` to read it.

    Raises:
        UnauthenticatedError: it presents something that is not valid.
    """
    try:
        identity = authentication.identify(cast(grpc.ServicerContext, _CallerContext(caller))).identity
    except HalError as error:
        raise UnauthenticatedError(error.reason) from None
    rules = authentication.accounts.of(identity).rules
    return CallerRights(identity, bool(rules.observe or rules.administer), bool(rules.administer))


class _CallerContext:
    """Stand-in for the context of a gRPC call."""

    def __init__(self, caller: HttpCaller) -> None:
        self._caller = caller

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", self._caller.authorization)] if self._caller.authorization else []

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self._caller.certificate is None else certificate_properties(self._caller.certificate)

    def peer(self) -> str:
        kind = "ipv6" if self._caller.address.startswith("[") else "ipv4"
        return f"{kind}:{self._caller.address}"


def certificate_properties(der: bytes) -> dict[str, list[bytes]]:
    """Return what gRPC reports about the certificate of a client, which is in DER."""
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
