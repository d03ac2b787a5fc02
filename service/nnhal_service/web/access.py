"""Rights of HTTP callers."""

from dataclasses import dataclass
from typing import Protocol

from nnhal_service.identity.identity import ANONYMOUS, Identity


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


class HttpAccess(Protocol):
    """Decides what callers may do. Thread safe."""

    def identify(self, caller: HttpCaller) -> Identity:
        """Return the identity of a caller.

        Raises:
            UnauthenticatedError: its credentials are invalid.
        """

    def may_observe(self, identity: Identity) -> bool:
        """Return whether an identity may read the state of the service, which includes sessions of others."""

    def may_administer(self, identity: Identity) -> bool:
        """Return whether an identity may change the service."""


class ReadOnlyAccess:
    """Access without identities: everything that reaches the port may read, and nothing may change the service."""

    def identify(self, caller: HttpCaller) -> Identity:
        """Return the anonymous identity. Credentials are refused, because nothing can check them."""
        if caller.authorization:
            raise UnauthenticatedError("the service has no identities; see docs/security.md")
        return ANONYMOUS

    def may_observe(self, identity: Identity) -> bool:
        """Return True."""
        return True

    def may_administer(self, identity: Identity) -> bool:
        """Return False."""
        return False
