"""Rights of HTTP callers, by the identities and the policy in the settings, which an operator may reload."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, cast

import grpc

from nnhal.errors import HalError
from nnhal_service.identity.authentication import Authentication
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.log import event
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.serving.client_authentication import create_authentication
from nnhal_service.settings import Settings

_PERIOD_S = 2.0
"""Seconds after which settings count, once they have been reloaded."""
_SPIFFE = "spiffe://"


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


class UnauthenticatedError(Exception):
    """Credentials are invalid. The text says why."""


@dataclass(frozen=True, slots=True)
class CallerRights:
    """Rights of a caller.

    Attributes:
        may_observe: whether it may read the state of the service, which includes sessions of others.
    """

    identity: Identity
    may_observe: bool
    may_administer: bool


FindRights: TypeAlias = Callable[[HttpCaller], CallerRights]
"""Returns the rights of a caller. Raises UnauthenticatedError if its credentials are invalid. Thread safe."""


def read_only_rights(caller: HttpCaller) -> CallerRights:
    """Return the rights of a caller of a service without identities: it may read, but change nothing.

    Raises:
        UnauthenticatedError: it has credentials, which nothing can check.
    """
    if caller.authorization:
        raise UnauthenticatedError("the service has no identities; see docs/security.md")
    return CallerRights(ANONYMOUS, may_observe=True, may_administer=False)


class ReloadingAccess:
    """Access by the latest settings.

    Args:
        port: TCP port of the server, by which it finds the users of connections.
        read_settings: returns the current settings; raises AdminError if they are not known now.
        count: counts an event, by its metric and labels.

    Raises:
        ValueError: tokens or keys cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        port: int,
        read_settings: Callable[[], Settings],
        count: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._port = port
        self._read_settings = read_settings
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = clock()
        self._find_rights = _create(settings, port, count)

    def find_rights(self, caller: HttpCaller) -> CallerRights:
        """Return the rights of a caller: see `FindRights`."""
        self._refresh()
        return self._find_rights(caller)

    def _refresh(self) -> None:
        with self._lock:
            if self._clock() - self._read_at < _PERIOD_S:
                return
            try:
                settings = self._read_settings()
                if settings != self._settings:
                    self._find_rights = _create(settings, self._port, self._count)
                    self._settings = settings
            except (AdminError, ValueError) as error:  # the previous ones count until the next attempt
                event("http-access-not-reloaded", logging.WARNING, why=str(error))
            self._read_at = self._clock()


def _create(settings: Settings, port: int, count: Callable[..., None]) -> FindRights:
    if not settings.needs_identity:
        return read_only_rights
    authentication = create_authentication(settings, count)
    authentication.ports = (port,)
    return partial(find_rights, authentication)


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
