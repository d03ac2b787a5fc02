"""Sequences: requests of a client to a model with states, each of which starts with the states of the one before."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nnhal.errors import invalid_argument
from nnhal.types import AnyArray
from nnhal_service.open_inference.guest_model import GuestModel
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import Reservation

_SequenceKey: TypeAlias = tuple[str, int | None, int | str]
"""Model, the version that requests name, and the id of a sequence."""
IDLE_S = 60.0
"""Seconds after its last request until a sequence may be ended."""


class SequenceStep(NamedTuple):
    """Place of a request in a sequence."""

    id: int | str
    is_start: bool
    is_end: bool


@dataclass(eq=False, slots=True)
class Sequence:
    """States between two requests, and the model that they belong to.

    Attributes:
        memory: counts the states as long as the sequence lives; None if it ends with its only request.
    """

    model: GuestModel
    states: list[AnyArray]
    memory: Reservation | None = None
    used_s: float = 0.0
    is_busy: bool = False


def _new_sequence(model: GuestModel) -> Sequence:
    return Sequence(model, [state.initial for state in model.served.model.states])


class Sequences:
    """Sequences of one client. Thread safe.

    Args:
        reserve: counts bytes as memory of the client.
    """

    def __init__(
        self, limits: Limits, reserve: Callable[[int], Reservation], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._reserve = reserve
        self._clock = clock
        self._sequences: dict[_SequenceKey, Sequence] = {}
        self._lock = threading.Lock()

    @contextmanager
    def step(self, model: GuestModel, version: int | None, step: SequenceStep | None) -> Iterator[Sequence]:
        """Run a request of a sequence in the context. Its new states count if it succeeds.

        A request without a step, or to a model without states, is a sequence of its own. `version` is the one that the
        request names; without one, a sequence stays with the version that it has started with.

        Raises:
            HalError: INVALID_ARGUMENT: it has not started, or its previous request has not ended;
                RESOURCE_EXHAUSTED_TRANSIENT: the client has too many sequences.
        """
        if step is None or not model.served.model.states:
            yield _new_sequence(model)
            return
        key = model.served.name, version, step.id
        with self._lock:
            sequence = self._begin(key, model, is_start=step.is_start)
        try:
            yield sequence
        except BaseException:
            self._end(key, sequence, is_last=False)
            raise
        self._end(key, sequence, is_last=step.is_end)

    def _begin(self, key: _SequenceKey, model: GuestModel, *, is_start: bool) -> Sequence:
        now_s = self._clock()
        sequence = self._sequences.get(key)
        if sequence is not None and sequence.is_busy:
            raise invalid_argument(f"the previous request for sequence {key[2]} to model '{key[0]}' has not ended")
        if is_start:
            self._sequences.pop(key, None)
            sequence = self._start(key, model, now_s)
        elif sequence is None:
            raise invalid_argument(
                f"inference request for sequence {key[2]} to model '{key[0]}' must specify the START flag on the "
                "first request of the sequence"
            )
        sequence.is_busy, sequence.used_s = True, now_s
        return sequence

    def _start(self, key: _SequenceKey, model: GuestModel, now_s: float) -> Sequence:
        for idle in [each for each, sequence in self._sequences.items() if self._is_idle(sequence, now_s)]:
            del self._sequences[idle]
        self._limits.require("sequences", len(self._sequences) + 1, "the client would have")
        sequence = _new_sequence(model)
        sequence.memory = self._reserve(sum(state.nbytes for state in sequence.states))
        self._sequences[key] = sequence
        return sequence

    def _is_idle(self, sequence: Sequence, now_s: float) -> bool:
        return not sequence.is_busy and now_s - sequence.used_s > IDLE_S

    def _end(self, key: _SequenceKey, sequence: Sequence, *, is_last: bool) -> None:
        with self._lock:
            sequence.is_busy, sequence.used_s = False, self._clock()
            if is_last:
                del self._sequences[key]
