"""Rights of HTTP callers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

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
