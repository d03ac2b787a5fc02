"""Stages of the client, and the place of the service's spans among them."""

import numpy as np

from nnhal.client.core.arrays import Outputs
from nnhal.client.core.profile import GRPC, StageTimer
from nnhal.types import UNMEASURED, Span, SpanKind
from nnhal.v1 import types_pb2


def profile_of(timer: StageTimer, spans: types_pb2.ExecutionResult) -> tuple[Span, ...]:
    profile = timer.profile(Outputs.of([np.zeros(1)], (), UNMEASURED), spans, GRPC)
    assert profile.started_ns == timer.started_ns
    return profile.client_spans


def test_stages_are_consecutive() -> None:
    timer = StageTimer()
    for stage in ("encode", "send", "wait"):
        timer.lap(stage)
    spans = profile_of(timer, types_pb2.ExecutionResult())
    assert [span.name for span in spans] == ["encode", "send", "wait"]
    assert spans[0].start_ns == 0
    assert [span.start_ns + span.duration_ns for span in spans[:-1]] == [span.start_ns for span in spans[1:]]


def test_successive_laps_of_a_stage_are_one_span() -> None:
    timer = StageTimer()
    for stage in ("encode", "encode", "upload", "encode"):
        timer.lap(stage)
    spans = profile_of(timer, types_pb2.ExecutionResult())
    assert [span.name for span in spans] == ["encode", "upload", "encode"]
    assert spans[0].start_ns == 0 and spans[0].duration_ns == spans[1].start_ns


def test_spans_and_their_number_come_from_the_service() -> None:
    message = types_pb2.Span(kind=types_pb2.SPAN_KIND_STAGE, name="queue", start_ns=-5, duration_ns=5)
    result = types_pb2.ExecutionResult(spans=[message], dropped_spans=3)
    profile = StageTimer().profile(Outputs.of([np.zeros(1)], (), UNMEASURED), result, GRPC)
    assert profile.spans == (Span(SpanKind.STAGE, "queue", "", 0, (), -5, 5),) and profile.dropped == 3
