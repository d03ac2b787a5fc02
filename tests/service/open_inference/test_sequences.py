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
        running.step(MODEL, START),
        pytest.raises(HalError, match="the previous request for sequence 1 to model 'model' has not ended"),
        running.step(MODEL, NEXT),
    ):
        pass
    with running.step(MODEL, NEXT):
        pass


def test_idle_sequence_makes_room() -> None:
    clock = Clock()
    running = sequences(clock)
    other = START._replace(id="other")
    with running.step(MODEL, START):
        pass
    with pytest.raises(HalError, match="limit sequences"), running.step(MODEL, other):
        pass
    clock.now_s = IDLE_S + 1
    with running.step(MODEL, other):
        pass
    with pytest.raises(HalError, match="START"), running.step(MODEL, NEXT):
        pass


def test_request_that_fails_does_not_end_its_sequence() -> None:
    running = sequences(Clock())
    with running.step(MODEL, START) as sequence:
        pass
    with pytest.raises(KeyError), running.step(MODEL, NEXT._replace(is_end=True)):
        raise KeyError
    with running.step(MODEL, NEXT) as again:
        assert again is sequence
