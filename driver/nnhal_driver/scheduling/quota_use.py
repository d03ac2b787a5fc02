"""Use of quotas by one client, which may have work in several processes."""


class Quota:
    """Numbers of the quotas whose use counts in all processes of a service. No enumeration: these are slow to hash."""

    SESSIONS = 0
    MEMORY_BYTES = 1
    PREPARED_MODELS = 2
    EXECUTIONS = 3
    SPENT_NS = 4
    COUNT = 5


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

    def claim(self, quota: int, own: int, amount: int, allowed: int) -> int | None:
        """Use `amount` more of a quota than the `own` use of this process, if all processes do not exceed `allowed`.

        Return None on success; or what all processes use, if the claim would exceed the quota.
        """
        return None if own + amount <= allowed else own
