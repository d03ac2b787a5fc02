"""Use of quotas by one client, which may have work in several processes."""

from collections.abc import Sequence
from dataclasses import dataclass


class Quota:
    """Numbers of the quotas whose use counts in all processes of a service. No enumeration: these are slow to hash."""

    SESSIONS = 0
    MEMORY_BYTES = 1
    PREPARED_MODELS = 2
    EXECUTIONS = 3
    SPENT_NS = 4
    COUNT = 5


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Place of a session whose client comes from another process.

    Attributes:
        predecessor: digest of the session there, whose use is held.
        taken: what this session has taken of it, as negative numbers.
    """

    predecessor: bytes
    taken: memoryview


class QuotaUse:
    """Use of the quotas of one client. This class is for one process; derived ones share it with others.

    The caller knows what it uses itself. It calls `claim` and `publish` of one quota under a lock of its own, with a
    number of `Quota`.
    """

    def publish(self, quota: int, value: int) -> None:
        """Tell the other processes what this one uses."""

    def elsewhere(self, quota: int) -> int:
        """Return what the other processes use."""
        return 0

    def hold(self, session: bytes, used: Sequence[int], place: HeldPlace | None, until_ns: int) -> None:
        """Hold what a session uses until an instant, for the session that its client opens in another process.

        Args:
            session: digest of the session.
            used: its use of the first quotas of `Quota`.
            place: its own place, the rest of which is held as well.
            until_ns: the instant.
        """

    def release_held(self) -> None:
        """Hold nothing any more."""

    def take(self, predecessor: bytes) -> HeldPlace | None:
        """Return the place of a session, given the digest of its predecessor; None if nothing is held for it."""
        return None

    def claim(self, quota: int, own: int, amount: int, allowed: int, place: HeldPlace | None = None) -> int | None:
        """Use `amount` more of a quota than the `own` use of this process, if all processes do not exceed `allowed`.

        A session with a place takes it from there first. Return None on success; or what all processes use, if the
        claim would exceed the quota.
        """
        return None if own + amount <= allowed else own
