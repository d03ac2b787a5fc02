"""Users whose services a client uses on this machine: no other user may take over the address of a dead service."""

import os
import time

from nnhal.address import Address
from nnhal.errors import HalError
from nnhal.local_users import listening_user, own_and_root
from nnhal.types import ErrorStatus

VARIABLE = "NNHAL_SERVICE_USERS"
"""Environment variable with the ids of further users whose services this program trusts."""


_SETTLING_S = 0.05
"""Seconds in which the kernel closes the sockets of a killed process."""


def trusted_users() -> frozenset[int]:
    """Return the ids of the users who may share memory with this program, and whose Unix sockets it connects to.

    Raises:
        ValueError: the environment variable is invalid.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        return own_and_root([int(user) for user in text.split(",") if user.strip()])
    except ValueError:
        raise ValueError(f"invalid {VARIABLE}={text!r}; expected user ids with commas between them") from None


class ServiceUser:
    """User who runs a service at an address of this machine. Later, no other user is accepted there.

    The user of a service on another machine, or of a port that is forwarded to another network, is unknown.
    """

    def __init__(self) -> None:
        self._user: int | None = None

    def settling_s(self, target: str, ended_at: float) -> float:
        """Return the seconds to wait before the listener at an address counts, after the end of a connection.

        The kernel closes the sockets of a killed process one by one, so its listener may outlive its connections.
        `ended_at` is the monotonic time of the end.
        """
        is_settled = self._user is None or Address.parse(target).kind == "unix"
        return 0.0 if is_settled else max(0.0, ended_at + _SETTLING_S - time.monotonic())

    def check(self, target: str) -> bool:
        """Check who listens at the address of the service, before anything is sent there.

        Returns:
            whether the user was found out; False if there is no listener.

        Raises:
            HalError: DEVICE_UNAVAILABLE: it is another user than before, or the Unix socket belongs to a user who is
                not trusted.
            ValueError: the environment variable is invalid.
        """
        address = Address.parse(target)
        if not address.is_local or (user := listening_user(address)) is None:
            return False
        if address.kind == "unix" and user not in (trusted := trusted_users()):
            expected = ", ".join(map(str, sorted(trusted)))
            raise _refused(f"the socket at {target} belongs to user {user}; expected {expected} (set {VARIABLE})")
        if self._user is None:
            self._user = user
        elif self._user != user:
            raise _refused(f"user {user} listens at {target}, where user {self._user} ran the service before")
        return True

    def is_unchanged(self, target: str) -> bool:
        """Return whether the user of the service still listens at its address, or was never known."""
        try:
            return self._user is None or self.check(target)
        except HalError:
            return False


def _refused(reason: str) -> HalError:
    return HalError(ErrorStatus.DEVICE_UNAVAILABLE, reason)
