"""Choice of a replica for an execution: the better one of two random ones. Pure code: no clock, no network."""

from collections import deque
from collections.abc import Collection, Sequence
from random import Random
from typing import Protocol, TypeVar

_HISTORY = 64


class Workload:
    """Executions of one replica. Not thread safe.

    Attributes:
        outstanding: number of executions in progress.
    """

    def __init__(self) -> None:
        self.outstanding = 0
        self._paces: deque[float] = deque(maxlen=_HISTORY)

    def begin(self) -> int:
        """Count an execution, and return the number of those in progress, with it."""
        self.outstanding += 1
        return self.outstanding

    def end(self, begun: int, seconds: float | None) -> None:
        """Remove an execution.

        Args:
            begun: the result of `begin`.
            seconds: its duration, or None if it failed.
        """
        self.outstanding -= 1
        if seconds is not None:
            self._paces.append(seconds / begun)

    @property
    def expected_s(self) -> float:
        """Least time in seconds that one more execution can be expected to take; 0 if nothing is known."""
        return min(self._paces, default=0.0) * (self.outstanding + 1)


class Loaded(Protocol):
    """An object with a workload."""

    @property
    def workload(self) -> Workload:
        """The workload."""


L = TypeVar("L", bound=Loaded)


def choose_replica(replicas: Sequence[L], random: Random, avoid: Collection[L] = ()) -> L | None:
    """Return the one of two random replicas that has less work; None if all of them are to be avoided."""
    others = [replica for replica in replicas if replica not in avoid]
    if len(others) < 2:
        return others[0] if others else None
    first, second = random.sample(others, 2)
    return second if second.workload.outstanding < first.workload.outstanding else first
