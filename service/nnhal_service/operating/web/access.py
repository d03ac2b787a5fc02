"""Rights of HTTP callers, by the identities and the policy in the settings, which an operator may reload."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.requests import Request

from nnhal.errors import HalError
from nnhal_service.identity.authentication import Authentication
from nnhal_service.identity.http_caller import HttpCaller, IdentifiedCaller
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.log import event
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.serving.client_authentication import create_authentication
from nnhal_service.settings import Settings

_PERIOD_S = 2.0
"""Seconds after which settings count, once they have been reloaded."""


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
        self._authentication = self._create(settings)

    def find_rights(self, caller: HttpCaller) -> CallerRights:
        """Return the rights of a caller: see `FindRights`."""
        self._refresh()
        return (
            find_rights(self._authentication, caller) if self._authentication.is_enabled else read_only_rights(caller)
        )

    def identify(self, caller: HttpCaller, *, with_user: bool = False) -> IdentifiedCaller:
        """Return who uses models by name, and its user if asked. The worker that it calls decides what it may do.

        Raises:
            HalError: GENERAL_FAILURE of kind UNAUTHENTICATED: it presents something that is not valid.
        """
        self._refresh()
        identity = self._authentication.identify(caller.context).identity
        return IdentifiedCaller(identity, caller.peer, self._authentication.user(caller.peer) if with_user else None)

    def _create(self, settings: Settings) -> Authentication:
        authentication = create_authentication(settings, self._count)
        authentication.ports = (self._port,)
        return authentication

    def _refresh(self) -> None:
        with self._lock:
            if self._clock() - self._read_at < _PERIOD_S:
                return
            try:
                settings = self._read_settings()
                if settings != self._settings:
                    self._authentication = self._create(settings)
                    self._settings = settings
            except (AdminError, ValueError) as error:  # the previous ones count until the next attempt
                event("http-access-not-reloaded", logging.WARNING, why=str(error))
            self._read_at = self._clock()


def find_rights(authentication: Authentication, caller: HttpCaller) -> CallerRights:
    """Return the rights of a caller with the credentials of clients: a bearer token, a certificate, or its user.

    The state shows all identities. So a caller needs the right `observe` or the right `administer` to read it.

    Raises:
        UnauthenticatedError: it presents something that is not valid.
    """
    try:
        identity = authentication.identify(caller.context).identity
    except HalError as error:
        raise UnauthenticatedError(error.reason) from None
    rules = authentication.accounts.of(identity).rules
    return CallerRights(identity, bool(rules.observe or rules.administer), bool(rules.administer))


def http_caller(request: Request) -> HttpCaller:
    """Return the caller of a request."""
    host, port = request.client or ("", "")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""
    certificate = getattr(request.state, "client_certificate", None)
    return HttpCaller(request.headers.get("authorization", ""), certificate, address)
