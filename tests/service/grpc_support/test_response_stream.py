"""Responses that another thread sends: none is lost, they keep their order, and the sender does not wait."""

import threading
from concurrent.futures import ThreadPoolExecutor

from nnhal_service.grpc_support.response_stream import QueuedSend

COUNT = 100
TIMEOUT_S = 60


def test_queued_responses() -> None:
    sent: list[int | None] = []
    may_send, ended = threading.Event(), threading.Event()

    def send(message: int | None) -> None:
        assert may_send.wait(TIMEOUT_S)
        sent.append(message)
        if message is None:
            ended.set()

    with ThreadPoolExecutor(4) as executor:
        queued = QueuedSend(send, executor)
        for number in range(COUNT):
            queued(number)
        queued(None)
        assert not sent
        may_send.set()
        assert ended.wait(TIMEOUT_S)
    assert sent == [*range(COUNT), None]
