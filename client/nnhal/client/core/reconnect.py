"""Common base of the reconnecting sessions of both clients, and its constants."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Generic

from nnhal.address import Address
from nnhal.client.core.handles import C
from nnhal.client.core.service_user import ServiceUser
from nnhal.client.core.session import Transport, timeout_error
from nnhal.client.forks import watch_forks
from nnhal.client.security.security import PLAIN, Security
from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import ErrorKind
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


def is_stopping(error: HalError) -> bool:
    """Return whether a service says that it is stopping."""
    return error.kind == ErrorKind.STOPPING


FindMembers = Callable[[], Sequence[str]]
"""Returns the addresses of all members of a fleet. It may block."""
FindNeeds = Callable[[], SessionNeeds | None]
"""Returns the needs of a client for its next session."""


def no_needs() -> SessionNeeds | None:
    """Return the needs of a client that any service can serve."""
    return None


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

    Args:
        given: the address that the client was given.
        members: others that it was given.

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
        """Remember other services.

        Args:
            opened_at: address of the service that told of them.
            members: their addresses, as it has sent them.
        """
        others: list[str] = []
        for text in members:
            with suppress(ValueError):  # this client cannot reach it
                others.append(Address.parse(opened_at).redirected(text))
        if others:
            self.add([opened_at, *others])

    def add(self, addresses: Sequence[str]) -> None:
        """Remember addresses. Of many, the ones that were learned first are forgotten."""
        self._members = tuple(dict.fromkeys([*addresses, *self._members]))[:_MAX_ADDRESSES]


class ReconnectingSessionBase(Generic[C]):
    """Connection of a device, replaced by another when its session is lost.

    Args:
        target: address of the service, or None to start one, and to start it again after it has died.
        timeout: seconds to wait for the service.
        transport: transport of executions.
        client_name: name of the client in the log of the service; "" for the name of the program.
        security: credentials of all connections.
        members: addresses of other services of a fleet.
        needs: returns what the client is about to use, for services of a fleet.
        find_members: asks the cluster of a fleet for addresses; None if the client does not know one.

    Attributes:
        connection: the current connection.
    """

    connection: C

    def __init__(
        self,
        target: str | None,
        timeout: float,
        transport: Transport,
        client_name: str,
        security: Security = PLAIN,
        members: Sequence[str] = (),
        needs: FindNeeds = no_needs,
        find_members: FindMembers | None = None,
    ) -> None:
        self._target = target
        self._find_members = find_members
        self._addresses = AddressBook(target or "", members)
        self._needs = needs
        self._security = security
        self._timeout = timeout
        self._transport = transport
        self._client_name = client_name
        self._user = ServiceUser()
        self._service: EmbeddedService | None = None
        self._closed = self._is_parents = False
        self._left: C | None = None
        watch_forks(self)

    def leave_to_parent(self) -> None:
        """Refuse all further calls, because this process is a fork of the one that has connected."""
        self._closed = self._is_parents = True

    def _timeout_error(self) -> DeadObjectError:
        return timeout_error(self.service_name, self._timeout)

    @property
    def service_name(self) -> str:
        """Address of the service, for messages."""
        return self._target or "the embedded service"

    @property
    def is_embedded(self) -> bool:
        """True if the service is a child process, which runs on this machine with the settings of this program."""
        return self._target is None

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def _may_answer(self) -> bool:
        return self._service is None or self._service.running
