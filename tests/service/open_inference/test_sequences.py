"""Sequences: one request at a time, and their end without requests."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal_service.open_inference.guest_model import GuestModel
from nnhal_service.open_inference.sequences import IDLE_S, Sequences, SequenceStep
from nnhal_service.sessions.limits import Limits

START, NEXT = SequenceStep(1, is_start=True, is_end=False), SequenceStep(1, is_start=False, is_end=False)
STATES = [SimpleNamespace(initial=np.zeros(4, np.uint8))]
MODEL = cast(GuestModel, SimpleNamespace(served=SimpleNamespace(name="model", model=SimpleNamespace(states=STATES))))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def sequences(clock: Clock, limit: int = 1) -> Sequences:
    return Sequences(Limits({"sequences": limit}), cast(Any, lambda size: size), clock)


def test_one_request_at_a_time() -> None:
    running = sequences(Clock())
    with (
        running.step(MODEL, None, START),
        pytest.raises(HalError, match="the previous request for sequence 1 to model 'model' has not ended"),
        running.step(MODEL, None, NEXT),
    ):
        pass
    with running.step(MODEL, None, NEXT):
        pass


def test_idle_sequence_makes_room() -> None:
    clock = Clock()
    running = sequences(clock)
    other = START._replace(id="other")
    with running.step(MODEL, None, START):
        pass
    with pytest.raises(HalError, match="limit sequences"), running.step(MODEL, None, other):
        pass
    clock.now_s = IDLE_S + 1
    with running.step(MODEL, None, other):
        pass
    with pytest.raises(HalError, match="START"), running.step(MODEL, None, NEXT):
        pass


def test_request_that_fails_does_not_end_its_sequence() -> None:
    running = sequences(Clock())
    with running.step(MODEL, None, START) as sequence:
        pass
    with pytest.raises(KeyError), running.step(MODEL, None, NEXT._replace(is_end=True)):
        raise KeyError
    with running.step(MODEL, None, NEXT) as again:
        assert again is sequence


def test_versions_have_sequences_of_their_own() -> None:
    running = sequences(Clock(), 2)
    with running.step(MODEL, 1, START) as first:
        pass
    with pytest.raises(HalError, match="START"), running.step(MODEL, 2, NEXT):
        pass
    with running.step(MODEL, 2, START) as second:
        pass
    with running.step(MODEL, 1, NEXT) as again:
        assert first is again is not second
