"""Times and addresses of reconnecting sessions."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum

from nnhal.address import Address
from nnhal.v1.session_pb2 import SessionNeeds, SessionRedirect

MAX_RETRIES = 3
"""Largest number of times that work is repeated because its service is lost."""
REPLACEMENT_TIMEOUT_S = 1.0
"""Seconds for which `connect` tries again if something listens, but ends the connection."""
ATTEMPT_TIMEOUT_S = 2.0
"""Seconds that one attempt to reach a service may take. A `close` meanwhile waits for the attempt."""
REDIRECT_TIMEOUT_S = 1.0
"""Seconds to wait for the service that a client is redirected to, before the client stays where it was."""
RETRY_DELAY_S = 0.02
"""Seconds between attempts."""


FindMembers = Callable[[], Sequence[str]]
"""Returns the addresses of all members of a fleet. It may block."""
FindNeeds = Callable[[], SessionNeeds | None]
"""Returns the needs of a client for its next session."""

_MAX_ADDRESSES = 32
"""Number of other services that a client remembers."""


class Hop(Enum):
    """Stage on the way to a service: the address that the client has, another service, or a worker of a service.

    Each stage follows redirects to later ones only, so that a client is not sent on forever.
    """

    FIRST = 0
    PLACED = 1
    LAST = 2

    def after(self, redirect: SessionRedirect) -> "Hop":
        """Return the stage after a redirect."""
        return Hop.PLACED if self is Hop.FIRST and redirect.other_service else Hop.LAST


class AddressBook:
    """Addresses at which a client opens sessions: the one that it was given, and other services of the fleet.

    Attributes:
        has_served: whether a session was opened at any of them.
    """

    def __init__(self, given: str, members: Sequence[str] = ()) -> None:
        self._given = given
        self._members = tuple(members)
        self._failed: dict[str, float] = {}
        self.has_served = False

    def candidates(self) -> list[str]:
        """Return all addresses, in the order in which to try them: those that failed last are the last ones."""
        known = dict.fromkeys((self._given, *self._members))
        return sorted(known, key=lambda address: self._failed.get(address, 0.0))

    @property
    def has_alternatives(self) -> bool:
        """True if there are other services."""
        return bool(self._members)

    def note_failure(self, address: str) -> None:
        """Remember that no session could be opened at an address."""
        self._failed[address] = time.monotonic()

    def note_session(self, opened_at: str, members: Iterable[str]) -> None:
        """Remember that a session was opened, and the other services that it told of: see `note_members`."""
        self.has_served = True
        self.note_members(opened_at, members)
        known = {self._given, *self._members}
        self._failed = {each: at for each, at in self._failed.items() if each in known and each != opened_at}

    def note_members(self, opened_at: str, members: Iterable[str]) -> None:
        """Remember other services, as the one at `opened_at` has sent their addresses."""
        others: list[str] = []
        for text in members:
            with suppress(ValueError):  # this client cannot reach it
                others.append(Address.parse(opened_at).redirected(text))
        if others:
            self.add([opened_at, *others])

    def add(self, addresses: Sequence[str]) -> None:
        """Remember addresses. Of many, the ones that were learned first are forgotten."""
        self._members = tuple(dict.fromkeys([*addresses, *self._members]))[:_MAX_ADDRESSES]
