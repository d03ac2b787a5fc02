"""Results of profiled executions, and what both clients need for them."""

import time
from dataclasses import dataclass

from nnhal import wire
from nnhal.client.core.arguments import optional_nanoseconds
from nnhal.client.core.arrays import Outputs
from nnhal.types import ExecutionConfig, Span, SpanKind
from nnhal.v1 import prepared_model_pb2, types_pb2

_CONFIG = wire.execution_config_message(ExecutionConfig(measure_timing=True, profile=True))

SHARED_MEMORY = "shared memory"
GRPC = "gRPC"


@dataclass(frozen=True)
class ExecutionProfile:
    """Result of a profiled execution.

    Attributes:
        outputs: the outputs, with `timing`.
        spans: the measured parts on the service, in the order in which they ended; empty if the device does not support
            profiling. They are relative to the start of the execution on the device.
        dropped: the number of spans that exceeded the limit and were dropped.
        client_spans: the stages of the client, relative to the start of the call: encode, upload (to shared memory, or
            of Memory objects), send, wait, download, decode.
        started_ns: time.perf_counter_ns() of the start of the call.
        transport: "shared memory" or "gRPC".
    """

    outputs: Outputs
    spans: tuple[Span, ...]
    dropped: int
    client_spans: tuple[Span, ...] = ()
    started_ns: int = 0
    transport: str = ""

    @property
    def offset_ns(self) -> int:
        """Time from the start of the call to the start of the execution on the device.

        It is an estimate, because client and service have clocks of their own: the request is assumed to take as long
        to arrive as the response.
        """
        sent = next((span.start_ns for span in self.client_spans if span.name == "send"), 0)
        received = next((span.start_ns + span.duration_ns for span in self.client_spans if span.name == "wait"), 0)
        start = min((span.start_ns for span in self.spans), default=0)
        end = max((span.start_ns + span.duration_ns for span in self.spans), default=0)
        return sent + max(0, received - sent - (end - start)) // 2 - start


class StageTimer:
    """Stopwatch for the consecutive stages of one call of the client.

    Attributes:
        started_ns: time.perf_counter_ns() of its creation.
    """

    def __init__(self) -> None:
        self.started_ns = self._lap_ns = time.perf_counter_ns()
        self._spans: list[Span] = []

    def lap(self, stage: str) -> None:
        """End a stage, which began at the end of the last one. Successive laps of one stage are one span."""
        now = time.perf_counter_ns()
        start = self._lap_ns
        if self._spans and self._spans[-1].name == stage:
            start = self.started_ns + self._spans.pop().start_ns
        self._spans.append(Span(SpanKind.STAGE, stage, "", 0, (), start - self.started_ns, now - start))
        self._lap_ns = now

    def profile(self, outputs: Outputs, spans: types_pb2.ExecutionResult, transport: str) -> ExecutionProfile:
        """Return the profile of the call. `spans` is a message with the spans of the service."""
        converted = tuple(map(wire.to_span, spans.spans))
        return ExecutionProfile(outputs, converted, spans.dropped_spans, tuple(self._spans), self.started_ns, transport)


def profile_request(
    session: bytes, handle: bytes, deadline: float | None
) -> prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest:
    """Return the request of a profiled execution, with an empty `request`."""
    return prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest(
        session=session, prepared_model=handle, config=_CONFIG, deadline_ns=optional_nanoseconds(deadline)
    )
