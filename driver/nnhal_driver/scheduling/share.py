"""Share of a device that belongs to one client, with all its sessions."""

import threading
import time
from collections.abc import Callable, Hashable

from nnhal.errors import limit_exceeded
from nnhal_driver.scheduling.quota_use import Quota, QuotaUse

BURST_S = 1
"""Seconds for which a client may save up running time that it did not use."""


class Share:
    """Quotas of the work of one client, and its weight. Thread safe.

    Args:
        weight: share of the device when others wait, relative to others.
        executions: quota of executions that run or wait; None for no quota.
        device_seconds: quota of running time in each second; None for no quota.
        clock: monotonic clock in nanoseconds.
        use: what the client uses in other processes.
    """

    def __init__(
        self,
        name: str,
        weight: float = 1.0,
        executions: int | None = None,
        device_seconds: float | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        use: QuotaUse | None = None,
    ) -> None:
        self.name = name
        self.weight = weight
        self.executions = executions
        self.device_seconds = device_seconds
        self._clock = clock
        self._use = use or QuotaUse()
        self._lock = threading.Lock()
        self._in_flight = 0
        self._spent_ns = 0
        self._spent_elsewhere_ns = self._use.elsewhere(Quota.SPENT_NS)
        self._level_ns = 0.0
        self._settled_at = clock()

    def begin_execution(self) -> None:
        """Count an execution that runs or waits, until `end_execution`. Only for shares with a quota of them.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit identity_executions.
        """
        assert self.executions is not None
        with self._lock:
            used = self._use.claim(Quota.EXECUTIONS, self._in_flight, 1, self.executions)
            if used is None:
                self._in_flight += 1
                return
        reason = f"{self.name} has {used} executions in flight; its quota is {self.executions}"
        raise limit_exceeded("identity_executions", reason)

    def end_execution(self) -> None:
        """Undo one `begin_execution`."""
        with self._lock:
            self._in_flight -= 1
            self._use.publish(Quota.EXECUTIONS, self._in_flight)

    def require_time(self) -> None:
        """Check that the running time is within its quota.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit identity_device_seconds.
        """
        if self.device_seconds is None:
            return
        with self._lock:
            self._settle()
            self._add_elsewhere()
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
                self._use.publish(Quota.SPENT_NS, self._spent_ns)

    def _settle(self) -> None:
        """Let the level sink by the quota of the time that has passed; at most, to what may be saved up."""
        assert self.device_seconds is not None, "there is no level without a quota"
        now = self._clock()
        passed_ns, self._settled_at = now - self._settled_at, now
        floor = -BURST_S * 1e9 * self.device_seconds
        self._level_ns = max(floor, self._level_ns - passed_ns * self.device_seconds)

    def _add_elsewhere(self) -> None:
        """Raise the level by the running time in other processes since the last call."""
        before_ns, self._spent_elsewhere_ns = self._spent_elsewhere_ns, self._use.elsewhere(Quota.SPENT_NS)
        if self._spent_elsewhere_ns > before_ns:  # it falls when a process ends
            self._level_ns += self._spent_elsewhere_ns - before_ns


class ShareOwner:
    """Owner of work that has a share with others: one of the sessions of a client. Each object is another owner.

    `name`: its name, for people.
    """

    __slots__ = ("name", "share")

    def __init__(self, name: str, share: Share) -> None:
        self.name = name
        self.share = share


def share_of(owner: Hashable) -> Share | None:
    """Return the share of an owner of work, or None if it is on its own."""
    return owner.share if type(owner) is ShareOwner else None
