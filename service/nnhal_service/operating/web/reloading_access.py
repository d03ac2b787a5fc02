"""Rights of HTTP callers by the settings, which an operator may reload."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from nnhal_service.log import event
from nnhal_service.operating.admin.errors import AdminError
from nnhal_service.operating.web.http_access import CallerRights, FindRights, HttpCaller, read_only_rights
from nnhal_service.serving.client_authentication import create_authentication
from nnhal_service.settings import Settings

_PERIOD_S = 2.0
"""Seconds after which settings count, once they have been reloaded."""


class ReloadingAccess:
    """Access by the latest settings.

    Args:
        port: TCP port of the server, by which it finds the users of connections.
        read_settings: returns the current settings; raises AdminError if they are not known now.

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
        self._find_rights = _create(settings, port)

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
                    self._find_rights = _create(settings, self._port)
                    self._settings = settings
            except (AdminError, ValueError) as error:  # the previous ones count until the next attempt
                event("http-access-not-reloaded", logging.WARNING, why=str(error))
            self._read_at = self._clock()


def _create(settings: Settings, port: int) -> FindRights:
    if not settings.needs_identity:
        return read_only_rights
    from nnhal_service.operating.web.identity_access import find_rights  # noqa: PLC0415 - loads cryptography

    authentication = create_authentication(settings)
    authentication.ports = (port,)
    return partial(find_rights, authentication)
