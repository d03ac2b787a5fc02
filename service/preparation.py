"""The stream of a preparation: `launched`, then exactly one `notify`; or, on a launch error, `notify` and the error.

It holds no thread while the work goes on.
"""

import threading
import time
from concurrent.futures import Executor
from dataclasses import replace

from driver.device import Outcome
from nnhal import wire
from nnhal.errors import HalError
from nnhal.types import CacheState, ErrorStatus
from nnhal.v1 import device_pb2
from service.log import event
from service.sessions import Session
from service.stream import ResponseStream

Stream = ResponseStream[device_pb2.PrepareModelEvent]

_MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


class PreparationStream:
    """One stream. The device's callback may come at any time, from any thread; what it brings waits for `launched`.

    Args:
        limited: the deadline is the service's limit, not the client's wish.
    """

    def __init__(self, session: Session, stream: Stream, executor: Executor, *, limited: bool) -> None:
        self._session = session
        self._stream = stream
        self._executor = executor
        self._limited = limited
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self._launched = False
        self._outcome: Outcome | None = None

    def notify(self, outcome: Outcome) -> None:
        """The device's callback. Never blocks its caller on the client."""
        if self._limited and outcome.status in _MISSED:
            outcome = replace(outcome, reason=f"{outcome.reason} (limit preparation_seconds)")
        with self._lock:
            self._outcome = outcome
            ready = self._launched
        if ready:
            self._executor.submit(self._finish, outcome)

    def launched(self) -> None:
        """The launch was OK."""
        self._stream.send(device_pb2.PrepareModelEvent(launched=device_pb2.Launched()))
        with self._lock:
            self._launched = True
            outcome = self._outcome
        if outcome is not None:
            self._finish(outcome)

    def refused(self, error: HalError) -> None:
        """The launch failed: the callback's notify comes first, then the error."""
        outcome = self._outcome or Outcome.of(error)
        self._stream.send(device_pb2.PrepareModelEvent(notify=self._message(outcome)))
        self._log(outcome)
        self._stream.end(error)

    def _finish(self, outcome: Outcome) -> None:
        """Notifies, unless the client has gone; a model that it did not get is let go."""
        handle = b""
        if self._stream.active:
            try:
                handle = self._handle(outcome)
            except HalError as error:
                outcome = Outcome.of(error)
        if handle or outcome.prepared_model is None:
            delivered = self._stream.send(device_pb2.PrepareModelEvent(notify=self._message(outcome, handle)))
            if not delivered:
                self._session.release([handle])
        self._log(outcome, handle)
        self._stream.end()

    def _handle(self, outcome: Outcome) -> bytes:
        """A handle for the prepared model; empty where there is none.

        Raises:
            HalError: the session has ended, or has all the models that it may have.
        """
        if outcome.prepared_model is None:
            return b""
        return self._session.add(outcome.prepared_model, "prepared_models")

    def _message(self, outcome: Outcome, handle: bytes = b"") -> device_pb2.Notify:
        prepared = outcome.prepared_model
        return device_pb2.Notify(
            status=int(outcome.status),  # type: ignore[arg-type]
            prepared_model=handle,
            reason=outcome.reason,
            rule=outcome.rule,
            warnings=(device_pb2.Warning(code=warning.code, text=warning.text) for warning in outcome.warnings),
            cache=wire.cache_outcome_message(outcome.cache) if outcome.cache.state else None,
            placement=wire.placement_message(outcome.placement),
            inputs=map(wire.operand_message, prepared.inputs) if prepared else (),
            outputs=map(wire.operand_message, prepared.outputs) if prepared else (),
        )

    def _log(self, outcome: Outcome, handle: bytes = b"") -> None:
        event(
            "prepared",
            session=self._session.name,
            model=self._session.label(handle) or "-",
            status=ErrorStatus(outcome.status).name,
            cache=CacheState(outcome.cache.state).name.lower() if outcome.cache.state else "-",
            ms=(time.perf_counter() - self._started) * 1e3,
            reason=outcome.reason or outcome.cache.reason or "-",
        )
