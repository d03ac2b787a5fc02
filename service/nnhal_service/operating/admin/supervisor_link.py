"""Requests of the admin process to its supervisor."""

import itertools
import threading
import time
from collections.abc import Mapping
from typing import Any

from nnhal_service.channel import Channel
from nnhal_service.operating.admin.actions import AdminError

_TIMEOUT_S = 10.0


class SupervisorLink:
    """Requests to the supervisor, one at a time. Thread safe."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def ask(self, request: str, **arguments: object) -> Mapping[str, Any]:
        """Send a request with its arguments, and return the answer: see `Supervisor._answer`.

        Raises:
            AdminError: the supervisor refuses it, or does not answer.
        """
        number = next(self._numbers)
        with self._lock:
            if not self._channel.send({"request": request, "number": number, **arguments}):
                raise AdminError("the service has ended")
            until = time.monotonic() + _TIMEOUT_S
            while (left := until - time.monotonic()) > 0 and self._channel.poll(left):
                received = self._channel.receive()
                if received is None:
                    raise AdminError("the service has ended")
                answer = received[0]
                if answer.get("number") != number:  # of a request that was given up
                    continue
                if "error" in answer:
                    raise AdminError(answer["error"])
                return answer
        raise AdminError(f"the supervisor did not answer within {_TIMEOUT_S:g} s")
