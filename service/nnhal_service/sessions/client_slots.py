"""Slots of one limit of the service, of which each client leaves some to others."""

import threading
from collections import Counter

from nnhal_service.sessions.limits import Limits


class ClientSlots:
    """The slots in use, by client: see `identity.client_name`. Thread safe.

    Args:
        name: name of the limit.
    """

    def __init__(self, limits: Limits, name: str) -> None:
        self._limits = limits
        self._name = name
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    def acquire(self, client: str) -> None:
        """Take a slot, until `release`.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, with the name of the limit.
        """
        with self._lock:
            self._limits.require_share(self._name, self._used.total(), self._used[client], client)
            self._used[client] += 1

    def release(self, client: str) -> None:
        """Give back a slot."""
        with self._lock:
            self._used[client] -= 1
            if not self._used[client]:
                del self._used[client]
