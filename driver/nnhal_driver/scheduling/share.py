"""Share of a device that belongs to one client, with all its sessions."""

import threading
import time
from collections.abc import Callable, Hashable

from nnhal.errors import limit_exceeded

BURST_S = 1
"""Seconds for which a client may save up running time that it did not use."""


class Share:
    """Quotas of the work of one client, and its weight. Thread safe.

    Args:
        name: of the client, for messages.
        weight: share of the device when others wait, relative to others.
        executions: quota of executions that run or wait; None for no quota.
        device_seconds: quota of running time in each second; None for no quota.
        clock: monotonic clock in nanoseconds.
    """

    def __init__(
        self,
        name: str,
        weight: float = 1.0,
        executions: int | None = None,
        device_seconds: float | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.name = name
        self.weight = weight
        self.executions = executions
        self.device_seconds = device_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._spent_ns = 0
        self._level_ns = 0.0
        self._settled_at = clock()

    @property
    def spent_ns(self) -> int:
        """Running time so far, of executions and preparations."""
        return self._spent_ns

    def require_executions(self, in_flight: int) -> None:
        """Check that one more execution is within the quota.

        Args:
            in_flight: number of executions that run or wait.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit identity_executions.
        """
        if self.executions is not None and in_flight >= self.executions:
            reason = f"{self.name} has {in_flight} executions in flight; its quota is {self.executions}"
            raise limit_exceeded("identity_executions", reason)

    def require_time(self) -> None:
        """Check that the running time is within its quota.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit identity_device_seconds.
        """
        if self.device_seconds is None:
            return
        with self._lock:
            self._settle()
            level_ns = self._level_ns
        if level_ns > 0:
            ahead_s = level_ns / 1e9 / self.device_seconds
            raise limit_exceeded(
                "identity_device_seconds",
                f"{self.name} has used the device for more than its quota of {self.device_seconds:g} s in each second; "
                f"it may use it again in {ahead_s:.3f} s",
            )

    def spend(self, elapsed_ns: int) -> None:
        """Count running time. It may exceed the quota, because work that runs is not interrupted."""
        with self._lock:
            self._spent_ns += elapsed_ns
            if self.device_seconds is not None:
                self._settle()
                self._level_ns += elapsed_ns

    def _settle(self) -> None:
        """Let the level sink by the quota of the time that has passed; at most, to what may be saved up."""
        assert self.device_seconds is not None, "there is no level without a quota"
        now = self._clock()
        passed_ns, self._settled_at = now - self._settled_at, now
        floor = -BURST_S * 1e9 * self.device_seconds
        self._level_ns = max(floor, self._level_ns - passed_ns * self.device_seconds)


class ShareOwner:
    """Owner of work that has a share with others: one of the sessions of a client. Each object is another owner.

    Attributes:
        name: its name, for people.
        share: the share that they have together.
    """

    __slots__ = ("name", "share")

    def __init__(self, name: str, share: Share) -> None:
        self.name = name
        self.share = share


def share_of(owner: Hashable) -> Share | None:
    """Return the share of an owner of work, or None if it is on its own."""
    return owner.share if type(owner) is ShareOwner else None
