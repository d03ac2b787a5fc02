"""Response stream of a preparation: `launched`, then exactly one `notify`. On a launch error, `notify` and the error.

The stream occupies no thread during the preparation.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

from nnhal import wire
from nnhal.errors import MISSED_DEADLINE, HalError
from nnhal.types import CacheState, ErrorStatus
from nnhal.v1 import device_pb2
from nnhal_driver.preparation.launch import DeviceCall
from nnhal_driver.preparation.outcome import Outcome
from nnhal_service.grpc_support.errors import internal_error
from nnhal_service.grpc_support.response_stream import ResponseStream
from nnhal_service.identity.digests import scoped_digest
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.log import event
from nnhal_service.metrics.preparations import PreparationMeter, is_miss
from nnhal_service.request_id import Request, carry, request_id
from nnhal_service.sessions.session import Session

Stream = ResponseStream[device_pb2.PrepareModelEvent]


class PreparationStream:
    """Stream of one preparation. The device may call `notify` at any time, from any thread.

    An outcome that arrives before `send_launched` is sent after it.

    Args:
        executor: runs what waits for the client.
        call: the call, as the device sees it.
        name: name of the model that the client gave it; or "".
        limited: whether the deadline is the service's limit, not the client's.
    """

    def __init__(
        self,
        session: Session,
        stream: Stream,
        executor: Executor,
        call: DeviceCall,
        meter: PreparationMeter,
        request: Request,
        *,
        name: str,
        limited: bool,
    ) -> None:
        self.session = session
        self.call = call
        self.name = name
        self._stream = stream
        self._executor = executor
        self._meter = meter
        self._request = request
        self._limited = limited
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self._launched = False
        self._on_session_close: Callable[[str], None] = lambda reason: None
        self._outcome: Outcome | None = None

    def notify(self, outcome: Outcome) -> None:
        """Send the outcome. This is the device's callback; it never blocks on the client."""
        if self._limited and outcome.status in MISSED_DEADLINE:
            outcome = replace(outcome, reason=f"{outcome.reason} (limit preparation_seconds)")
        with self._lock:
            self._outcome = outcome
            ready = self._launched
        if ready:
            self._executor.submit(self._finish_carried, outcome)

    def send_launched(self) -> None:
        """Report a successful launch. From now on the preparation ends with its session."""
        session, cancellation = self.session, self.call.cancellation
        self._meter.cancellation = cancellation
        # a cycle with this object would keep the prepared model until garbage is collected
        self._on_session_close = lambda reason: cancellation.cancel(session.end_error)
        session.on_close(self._on_session_close)
        self._stream.send(device_pb2.PrepareModelEvent(launched=device_pb2.Launched()))
        with self._lock:
            self._launched = True
            outcome = self._outcome
        if outcome is not None:
            self._finish(outcome)

    @property
    def is_miss(self) -> bool:
        """True if the launch has failed because the model is not in the cache."""
        return self._outcome is not None and is_miss(self._outcome.cache)

    def reject(self, error: HalError) -> None:
        """Report a failed launch: first the `notify` of the callback, then the error."""
        outcome = self._outcome or Outcome.from_error(error)
        reject_preparation(self._stream, error, self._request, outcome)
        self._report(outcome)

    def _finish_carried(self, outcome: Outcome) -> None:
        with carry(self._request):
            self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        """Send the outcome if the client is still connected; release a prepared model that it did not receive."""
        self.session.off_close(self._on_session_close)
        cut_off = self.session.end_error() if self.session.closed else None
        if cut_off is not None:
            outcome = Outcome.from_error(cut_off)
        handle = b""
        try:
            if self._stream.active:
                handle = self._handle(outcome)
            message = notify_message(outcome, self._request, handle, self.session.identity)
        except BaseException as error:  # the client waits for its notify
            self.session.release([handle])
            handle, outcome = b"", Outcome.from_error(error if isinstance(error, HalError) else internal_error(error))
            message = notify_message(outcome, self._request)
        wanted = bool(handle) or outcome.prepared_model is None
        if wanted and not self._stream.send(device_pb2.PrepareModelEvent(notify=message)):
            self.session.release([handle])
        self._report(outcome, handle)
        self._stream.end(cut_off)  # the outcome does not tell whether the session is lost

    def _handle(self, outcome: Outcome) -> bytes:
        """Return a handle for the prepared model; empty if there is none."""
        if outcome.prepared_model is None:
            return b""
        return self.session.add(outcome.prepared_model, "prepared_models", self.name)

    def _report(self, outcome: Outcome, handle: bytes = b"") -> None:
        digest = outcome.prepared_model.digest if outcome.prepared_model is not None else b""
        self._meter.end(outcome.status, digest, outcome.cache)
        session, ms = self.session.name, (time.perf_counter() - self._started) * 1e3
        if outcome.prepared_model is None and is_miss(outcome.cache):
            event("cache-miss", session=session, ms=ms, reason=outcome.cache.reason)  # the client prepares the model
            return
        event(
            "prepared",
            session=session,
            model=self.session.label(handle) or "-",
            status=ErrorStatus(outcome.status).name,
            cache=CacheState(outcome.cache.state).name.lower() if outcome.cache.state else "-",
            ms=ms,
            reason=outcome.reason or outcome.cache.reason or "-",
        )


def reject_preparation(stream: Stream, error: HalError, request: Request, outcome: Outcome | None = None) -> None:
    """End the call of a failed launch: first with a `notify`, by default of the error, then with the error."""
    stream.send(device_pb2.PrepareModelEvent(notify=notify_message(outcome or Outcome.from_error(error), request)))
    stream.end(error)


def notify_message(
    outcome: Outcome, request: Request, handle: bytes = b"", identity: Identity = ANONYMOUS
) -> device_pb2.Notify:
    """Return the message of an outcome, with the handle of its model."""
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
        extension_types=wire.extension_types_message(prepared.extension_types, (*prepared.inputs, *prepared.outputs))
        if prepared and prepared.extension_types
        else (),
        model_digest=scoped_digest(identity, prepared.digest) if prepared else b"",
        request="" if outcome.status == ErrorStatus.NONE else request_id(request),
    )
