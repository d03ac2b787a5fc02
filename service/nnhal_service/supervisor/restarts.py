"""Back-off between the restarts of one worker, and the limit of failed starts."""

from dataclasses import dataclass, field

STABLE_S = 10.0
"""Seconds after which a worker counts as stable. The next crash is then restarted at once again."""
MAX_FAILED_STARTS = 5
"""Number of starts in a row that may fail before the service gives up."""
_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 5.0
_IMMEDIATE = 2
"""Number of crashes in a row that are restarted at once."""


class RestartPolicy:
    """Restarts of one worker."""

    def __init__(self) -> None:
        self._crashes = 0
        self._failed_starts = 0

    def note_serving(self) -> None:
        """Count a successful start."""
        self._failed_starts = 0

    def delay(self, served_s: float | None, *, unexplained: bool) -> float:
        """Return the seconds until the next start.

        Args:
            served_s: seconds that the worker has served; None if it never did.
            unexplained: whether it failed without a known cause. If it was killed from outside, or a model is known to
                be at fault, it is restarted at once: its other clients must not wait because of that.
        """
        if served_s is None:
            self._failed_starts += 1
        if served_s is not None and (served_s >= STABLE_S or not unexplained):
            self._crashes = 0
        self._crashes += 1
        if self._crashes <= _IMMEDIATE and served_s is not None:
            return 0.0
        return min(_FIRST_DELAY_S * 2.0 ** max(0, self._crashes - _IMMEDIATE), _MAX_DELAY_S)

    @property
    def has_failed_too_often(self) -> bool:
        """True if too many starts in a row have failed."""
        return self._failed_starts >= MAX_FAILED_STARTS


@dataclass(slots=True)
class WorkerSlot:
    """State of one worker that its successors inherit.

    Attributes:
        restart_at: monotonic time of the next start; None if none is due.
        restarts: how often it had to be started again.
        last_end: how it ended the last time, or "".
        is_drained: whether it accepts no sessions until an operator resumes it.
    """

    policy: RestartPolicy = field(default_factory=RestartPolicy)
    restart_at: float | None = None
    restarts: int = 0
    last_end: str = ""
    is_drained: bool = False
