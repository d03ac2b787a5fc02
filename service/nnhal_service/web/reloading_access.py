"""Rights of HTTP callers by the settings, which an operator may reload."""

import logging
import threading
import time
from collections.abc import Callable

from nnhal_service.access import create_authentication
from nnhal_service.admin.view import AdminError
from nnhal_service.identity.identity import Identity
from nnhal_service.log import event
from nnhal_service.settings import Settings
from nnhal_service.web.access import HttpAccess, HttpCaller, ReadOnlyAccess

_PERIOD_S = 2.0
"""Seconds after which settings count, once they have been reloaded."""


class ReloadingAccess:
    """Access by the latest settings.

    Args:
        settings: settings at the start.
        port: TCP port of the server, by which it finds the users of connections.
        read_settings: returns the current settings; raises AdminError if they are not known now.
        clock: monotonic seconds.

    Raises:
        ValueError: tokens or keys cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        port: int,
        read_settings: Callable[[], Settings],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._port = port
        self._read_settings = read_settings
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = clock()
        self._access = _create(settings, port)

    def identify(self, caller: HttpCaller) -> Identity:
        """Return the identity of a caller.

        Raises:
            UnauthenticatedError: its credentials are invalid.
        """
        self._refresh()
        return self._access.identify(caller)

    def may_observe(self, identity: Identity) -> bool:
        """Return whether the policy lets an identity read the state of the service."""
        return self._access.may_observe(identity)

    def may_administer(self, identity: Identity) -> bool:
        """Return whether the policy lets an identity change the service."""
        return self._access.may_administer(identity)

    def _refresh(self) -> None:
        with self._lock:
            if self._clock() - self._read_at < _PERIOD_S:
                return
            try:
                settings = self._read_settings()
                if settings != self._settings:
                    self._access = _create(settings, self._port)
                    self._settings = settings
            except (AdminError, ValueError) as error:  # the previous ones count until the next attempt
                event("http-access-not-reloaded", logging.WARNING, why=str(error))
            self._read_at = self._clock()


def _create(settings: Settings, port: int) -> HttpAccess:
    if not settings.needs_identity:
        return ReadOnlyAccess()
    from nnhal_service.web.identity_access import IdentityAccess  # noqa: PLC0415 - loads cryptography

    authentication = create_authentication(settings)
    authentication.ports = (port,)
    return IdentityAccess(authentication)
