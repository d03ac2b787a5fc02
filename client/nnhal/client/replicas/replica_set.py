"""The replicas of a model, what they do, and which of them takes the next execution."""

import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any, Generic, Protocol, TypeVar, cast

from nnhal.client.core.cache import SharedDeadline, is_session_lost
from nnhal.client.security.options import NO_OPTIONS, SecurityOptions
from nnhal.errors import HalError, argument_error
from nnhal.types import ErrorStatus
from nnhal.v1.session_pb2 import SessionNeeds

_BUSY = (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, ErrorStatus.DEVICE_UNAVAILABLE)
"""Statuses of executions that another replica may carry out."""
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


class ReplicaDevice(Protocol):
    """Device of a replica, in either client."""

    @property
    def _connection(self) -> Any:
        """Its current connection."""


D = TypeVar("D", bound=ReplicaDevice)
P = TypeVar("P")


class Replica(Generic[D, P]):
    """A replica. If its service dies, the device goes on with another one, which prepares the model again."""

    def __init__(self, device: D, prepared: P) -> None:
        self.device = device
        self.prepared = prepared
        self.workload = Workload()

    @property
    def member(self) -> str:
        """Id of the member of the fleet that serves it."""
        member: str = self.device._connection.member
        return member


class ReplicaSet(Generic[D, P]):
    """The replicas of a model. Thread safe."""

    def __init__(self, replicas: Sequence[Replica[D, P]]) -> None:
        self.replicas = tuple(replicas)
        self._random = Random()
        self._lock = threading.Lock()

    @property
    def members(self) -> list[str]:
        """Ids of the members of the fleet that serve the replicas."""
        return [replica.member for replica in self.replicas]

    @property
    def outstanding(self) -> list[int]:
        """Number of executions in progress, for each replica."""
        with self._lock:
            return [replica.workload.outstanding for replica in self.replicas]

    def begin(self, avoid: Sequence[Replica[D, P]], deadline: SharedDeadline) -> tuple[Replica[D, P], int] | None:
        """Choose a replica, and count an execution there. Return None if all are to be avoided.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be expected to answer in time.
        """
        with self._lock:
            replica = choose_replica(self.replicas, self._random, avoid)
            if replica is None:
                return None
            remaining, expected = deadline.remaining, replica.workload.expected_s
            if remaining is not None and expected > remaining:
                reason = f"the execution would take {expected:.3g} s at least, with {remaining:.3g} s left"
                raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, reason)
            return replica, replica.workload.begin()

    def end(self, replica: Replica[D, P], begun: int, seconds: float | None) -> None:
        """Remove an execution that `begin` has counted."""
        with self._lock:
            replica.workload.end(begun, seconds)


R = TypeVar("R", bound=Replica[Any, Any])


def choose_replica(replicas: Sequence[R], random: Random, avoid: Collection[R] = ()) -> R | None:
    """Return the one of two random replicas that has less work; None if all of them are to be avoided."""
    others = [replica for replica in replicas if replica not in avoid]
    if len(others) < 2:
        return others[0] if others else None
    first, second = random.sample(others, 2)
    return second if second.workload.outstanding < first.workload.outstanding else first


def fleet_options(security: Mapping[str, Any]) -> SecurityOptions:
    """Return the options of `connect` for TLS and tokens, with defaults for those that are not given.

    Raises:
        TypeError: one is unknown.
    """
    if unknown := sorted(set(security) - set(NO_OPTIONS)):
        raise TypeError(f"Fleet() got an unexpected argument {unknown[0]!r}")
    return cast(SecurityOptions, {**NO_OPTIONS, **security})


def check_count(replicas: int) -> None:
    """Check a number of replicas.

    Raises:
        HalError: INVALID_ARGUMENT: it is not positive.
    """
    if replicas < 1:
        raise argument_error(f"replicas is {replicas}; expected a positive number")


def needs_of(number: int, made: Sequence[Replica[D, P]], needs: SessionNeeds) -> SessionNeeds:
    """Return the needs of a replica: those of the model, on another member than those of the other replicas.

    `number` is its position in `made`, which has the replicas so far if it is not one of them yet.
    """
    own = SessionNeeds(avoid=[replica.member for replica in [*made[:number], *made[number + 1 :]]])
    own.MergeFrom(needs)
    return own


def no_replica_error() -> HalError:
    """Return the error of an execution that all replicas have failed to take."""
    return HalError(ErrorStatus.DEVICE_UNAVAILABLE, "no replica is left")


def may_repeat(error: BaseException) -> bool:
    """Return whether another replica may succeed."""
    return isinstance(error, HalError) and (is_session_lost(error) or error.status in _BUSY)
