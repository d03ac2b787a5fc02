"""The stream of a preparation: `launched`, then exactly one `notify`; or, on a launch error, `notify` and the error.

It holds no thread while the work goes on.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor

import grpc

from driver.device import Outcome
from nnhal import wire
from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2
from service.log import event
from service.rpc import fail
from service.sessions import Session

Send = Callable[[device_pb2.PrepareModelEvent | None], None]


class PreparationStream:
    """One stream. The device's callback may come at any time, from any thread; what it brings waits for `launched`."""

    def __init__(self, session: Session, context: grpc.ServicerContext, send: Send, executor: Executor) -> None:
        self._session = session
        self._context = context
        self._send = send
        self._executor = executor
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self._launched = False
        self._outcome: Outcome | None = None

    def notify(self, outcome: Outcome) -> None:
        """The device's callback. Never blocks its caller on the client."""
        with self._lock:
            self._outcome = outcome
            ready = self._launched
        if ready:
            self._executor.submit(self._finish, outcome)

    def launched(self) -> None:
        """The launch was OK."""
        self._send(device_pb2.PrepareModelEvent(launched=device_pb2.Launched()))
        with self._lock:
            self._launched = True
            outcome = self._outcome
        if outcome is not None:
            self._finish(outcome)

    def refused(self, error: HalError) -> None:
        """The launch failed: the callback's notify comes first, then the error."""
        self._send(device_pb2.PrepareModelEvent(notify=self._message(self._outcome or Outcome.of(error))))
        fail(self._context, error)
        self._send(None)

    def _finish(self, outcome: Outcome) -> None:
        self._send(device_pb2.PrepareModelEvent(notify=self._message(outcome)))
        self._send(None)

    def _message(self, outcome: Outcome) -> device_pb2.Notify:
        message = device_pb2.Notify(
            status=int(outcome.status),  # type: ignore[arg-type]
            reason=outcome.reason,
            rule=outcome.rule,
            placement=wire.placement_message(outcome.placement),
        )
        if outcome.prepared_model is not None:
            try:
                message.prepared_model = self._session.add(outcome.prepared_model)
            except HalError as lost:
                return device_pb2.Notify(status=int(lost.status), reason=lost.reason)  # type: ignore[arg-type]
            message.inputs.extend(map(wire.operand_message, outcome.prepared_model.inputs))
            message.outputs.extend(map(wire.operand_message, outcome.prepared_model.outputs))
        event(
            "prepared",
            session=self._session.name,
            status=ErrorStatus(outcome.status).name,
            model=message.prepared_model[:4].hex(),
            ms=(time.perf_counter() - self._started) * 1e3,
            reason=outcome.reason,
        )
        return message
