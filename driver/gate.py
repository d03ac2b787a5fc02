"""Who may execute when: at most as many executions at once as the gate is wide; the rest wait for their turn.

Owners are served fairly: the next turn goes to the one that has had the least time so far. Among one owner's executions
the highest priority goes first, then the earliest deadline, then the order of arrival (the HAL orders one client's
models only). Work that can no longer be done in time never gets a turn, and nobody waits behind it.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from driver.cancellation import Cancellation, cancelled
from driver.deadline import NO_DEADLINE, Deadline, now_ns
from nnhal.errors import HalError, missed_deadline
from nnhal.types import OMITTED, ErrorKind, ErrorStatus

Key = tuple[int, int, int]


def sort_key(priority: int, deadline: Deadline, number: int) -> Key:
    """What sorts first goes first."""
    return (-priority, deadline.at_ns if deadline.at_ns != OMITTED else 2**63, number)


def full(limit: str, length: int) -> HalError:
    """The refusal of work for which there is no place in a queue."""
    reason = f"{length} wait for their turn already (limit {limit})"
    return HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, reason, kind=ErrorKind.LIMIT, limit=limit)


class Claim(NamedTuple):
    """What an execution brings to the gate.

    Attributes:
        owner: on whose behalf; None is an owner too.
        needed_ns: what it takes at least once it runs; 0 where nothing is known.
    """

    priority: int
    deadline: Deadline = NO_DEADLINE
    owner: Hashable = None
    needed_ns: int = 0

    @property
    def latest(self) -> Deadline:
        """When it must start at the latest."""
        return Deadline(self.deadline.at_ns - self.needed_ns) if self.deadline.at_ns != OMITTED else NO_DEADLINE

    def too_late(self) -> HalError | None:
        """MISSED_DEADLINE_TRANSIENT where it cannot be done in time any more, else None."""
        if self.deadline.at_ns == OMITTED or not self.latest.passed():
            return None
        if self.deadline.passed():
            return missed_deadline("the deadline passed before the execution could start")
        left, needed = (f"{ns / 1e6:.3g} ms" for ns in (self.deadline.at_ns - now_ns(), self.needed_ns))
        return missed_deadline(f"{left} are left, and no recent execution of this model took less than {needed}")


class Turn:
    """One execution's turn, while it waits for it and while it has it.

    Args:
        told: is called once, from any thread, when a turn that did not come at once comes, or will never come: `error`
            then says why. It must neither block nor raise. None: somebody waits for `come`, which is set then.
    """

    __slots__ = ("claim", "come", "error", "key", "since_ns", "told")

    def __init__(self, claim: Claim, told: Callable[["Turn"], None] | None = None) -> None:
        self.claim = claim
        self.told = told
        self.come: threading.Event | None = None
        self.error: HalError | None = None
        self.key: Key = (0, 0, 0)
        self.since_ns = 0

    def __lt__(self, other: "Turn") -> bool:
        return self.key < other.key

    def tell(self) -> None:
        """The wait is over."""
        told, self.told = self.told, None  # a turn must not keep alive who waited for it
        if told is not None:
            told(self)
        else:
            assert self.come is not None
            self.come.set()


class _Owner:
    """Of some of the executions. `served_ns`: time that it has had, on a scale where newcomers start level."""

    __slots__ = ("running", "served_ns", "waiting")

    def __init__(self, served_ns: int) -> None:
        self.served_ns = served_ns
        self.running = 0
        self.waiting: list[Turn] = []


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of executions since the start.

    Attributes:
        started: those that had a turn.
        refused: cannot be done in time, said at once.
        expired: their deadline passed, or came too near, while they waited for their turn.
        wasted: had a turn, and their deadline passed before they were done.
        wasted_ns: what these took.
    """

    started: int = 0
    refused: int = 0
    expired: int = 0
    wasted: int = 0
    wasted_ns: int = 0


class Gate:
    """Lets at most `width` executions run at once, and at most `queue` wait. Thread safe."""

    def __init__(self, width: int, queue: int) -> None:
        self._free = width
        self._queue = queue
        self._lock = threading.Lock()
        self._owners: dict[Hashable, _Owner] = {}
        self._waiting = 0
        self._level_ns = 0
        self._numbers = itertools.count()
        self._counted = dict.fromkeys(Counts.__slots__, 0)

    @property
    def counts(self) -> Counts:
        """What became of executions until now."""
        with self._lock:
            return Counts(**self._counted)

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return self._waiting

    def pass_(self, claim: Claim, cancellation: Cancellation | None = None) -> "Passage":
        """A context that waits for a turn on the calling thread, and holds it."""
        return Passage(self, claim, cancellation)

    def enter(self, turn: Turn) -> bool:
        """Asks for a turn; whoever gets it must `leave`.

        Returns:
            whether it came at once; if not, the turn's `told` is called later.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be done in time; RESOURCE_EXHAUSTED_TRANSIENT: too many wait.
        """
        claim = turn.claim
        error = None if claim.deadline is NO_DEADLINE else claim.too_late()
        with self._lock:
            if error is not None:
                self._counted["refused"] += 1
                raise error
            if self._free == 0 and self._waiting >= self._queue:
                raise full("queued_executions", self._queue)
            owner = self._owners.get(claim.owner)
            if owner is None:
                owner = self._owners[claim.owner] = _Owner(self._level_ns)
            if self._free > 0:
                self._grant(owner, turn)
                return True
            if turn.told is None:
                turn.come = threading.Event()
            turn.key = sort_key(turn.claim.priority, turn.claim.deadline, next(self._numbers))
            heapq.heappush(owner.waiting, turn)
            self._waiting += 1
            return False

    def leave(self, turn: Turn) -> None:
        """Gives a turn back."""
        elapsed = time.perf_counter_ns() - turn.since_ns
        claim = turn.claim
        missed = claim.deadline is not NO_DEADLINE and claim.deadline.passed()
        with self._lock:
            owner = self._owners[claim.owner]
            owner.running -= 1
            owner.served_ns += elapsed
            self._free += 1
            if missed:
                self._counted["wasted"] += 1
                self._counted["wasted_ns"] += elapsed
            told: Sequence[Turn] = self._serve() if self._waiting else ()
            self._forget(claim.owner)
        for one in told:
            one.tell()

    def give_up(self, turn: Turn, error: HalError) -> bool:
        """Ends the wait for a turn with an error; gives whether it was still waiting for it."""
        with self._lock:
            owner = self._owners.get(turn.claim.owner)
            if owner is None or turn not in owner.waiting:
                return False
            owner.waiting.remove(turn)
            heapq.heapify(owner.waiting)
            self._waiting -= 1
            turn.error = error
            if turn.claim.latest.passed():
                self._counted["expired"] += 1
            self._forget(turn.claim.owner)
        turn.tell()
        return True

    def wait(self, turn: Turn, cancellation: Cancellation | None) -> None:
        """Waits for a turn that did not come at once, on the calling thread.

        Raises:
            HalError: it will not come: what `Passage` says.
        """
        assert turn.come is not None
        if cancellation is not None:
            cancellation.when_cancelled(lambda: self._cancel(turn))
        while not turn.come.wait(turn.claim.latest.remaining_s()):
            if error := turn.claim.too_late():
                self.give_up(turn, error)  # then `come` is set, also where the turn came at the last moment
        if turn.error is not None:
            raise turn.error

    def _cancel(self, turn: Turn) -> None:
        self.give_up(turn, cancelled())

    def _serve(self) -> list[Turn]:
        """Grants the free turns; gives those to be told, the ones that are too late among them."""
        told = []
        while self._free > 0 and self._waiting > 0:
            owner = min((one for one in self._owners.values() if one.waiting), key=_first)
            turn = heapq.heappop(owner.waiting)
            self._waiting -= 1
            turn.error = turn.claim.too_late()
            if turn.error is None:
                self._grant(owner, turn)
            else:
                self._counted["expired"] += 1
                self._forget(turn.claim.owner)
            told.append(turn)
        return told

    def _grant(self, owner: _Owner, turn: Turn) -> None:
        self._level_ns = max(self._level_ns, owner.served_ns)
        owner.running += 1
        self._free -= 1
        turn.since_ns = time.perf_counter_ns()
        self._counted["started"] += 1

    def _forget(self, name: Hashable) -> None:
        """Lets an owner go that has nothing here; when it comes back it starts level with the others."""
        owner = self._owners.get(name)
        if owner is not None and not owner.running and not owner.waiting:
            del self._owners[name]


class Passage(Turn):
    """See `Gate.pass_`. No generator: it would cost as much as the gate itself."""

    __slots__ = ("_cancellation", "_gate")

    def __init__(self, gate: Gate, claim: Claim, cancellation: Cancellation | None) -> None:
        super().__init__(claim)
        self._gate = gate
        self._cancellation = cancellation

    def __enter__(self) -> None:
        """Waits.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT: it cannot be done in time, or the turn did not come in time;
                RESOURCE_EXHAUSTED_TRANSIENT: too many wait already; GENERAL_FAILURE: cancelled.
        """
        if not self._gate.enter(self):
            self._gate.wait(self, self._cancellation)

    def __exit__(self, *_: object) -> None:
        self._gate.leave(self)


def _first(owner: _Owner) -> tuple[int, int, Key]:
    return (owner.served_ns, owner.running, owner.waiting[0].key)
