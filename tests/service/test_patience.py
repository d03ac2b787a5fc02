"""Transfers that stand still are ended; those that are slow are not."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from service.patience import Patience


class Context:
    """As much of a grpc.ServicerContext as is needed."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        self.cancelled.set()

    def peer(self) -> str:
        return "test"


@pytest.fixture
def patience() -> Iterator[Patience]:
    made = Patience(0.4)
    yield made
    made.close()


def chunks(context: Context, pause: float, count: int) -> Iterator[int]:
    for i in range(count):
        if context.cancelled.wait(pause):
            raise ConnectionError
        yield i


def test_a_chunk_that_does_not_come(patience: Patience) -> None:
    context: Any = Context()
    with pytest.raises(ConnectionError):
        list(patience.receive(chunks(context, 10, 1), context))


def test_a_chunk_that_is_not_taken(patience: Patience) -> None:
    context: Any = Context()
    sending = patience.send([1, 2], context)
    assert next(sending) == 1
    assert context.cancelled.wait(5)


def test_slow_is_not_still(patience: Patience) -> None:
    context: Any = Context()
    for _ in patience.send(patience.receive(chunks(context, 0.15, 5), context), Context()):  # type: ignore[arg-type]
        time.sleep(0.15)
    assert not context.cancelled.is_set()


def test_what_has_ended_is_forgotten(patience: Patience) -> None:
    context: Any = Context()
    assert list(patience.receive(iter([1, 2]), context)) == [1, 2]
    assert patience._waiting == {}
