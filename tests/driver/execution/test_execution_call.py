"""Record of an execution: who records its spans, and what the driver fills in."""

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, ExecutionConfig
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.profiling import SpanRecorder
from nnhal_driver.scheduling.deadline import now_ns
from tests.driver.blocking_backend import Sum, blocking_device

PROFILE = ExecutionConfig(profile=True)


def test_nothing_is_recorded_unless_wanted() -> None:
    call = ExecutionCall()
    call.note_decoded(profile=False)
    assert call.spans is None


def test_profile_of_the_client_has_operations() -> None:
    call = ExecutionCall()
    call.note_decoded(profile=True)
    assert call.spans is not None
    assert call.spans.operations


@pytest.mark.parametrize("profile", [False, True])
def test_recorder_of_the_caller_is_kept(profile: bool) -> None:
    call = ExecutionCall()
    spans = call.spans = SpanRecorder(operations=False)
    call.note_decoded(profile=profile)
    assert call.spans is spans
    assert spans.operations == profile


def test_calls_have_cancellations_of_their_own() -> None:
    first, second = ExecutionCall(), ExecutionCall()
    first.cancellation.cancel()
    assert not second.cancellation.cancelled


@pytest.mark.parametrize("profile", [False, True])
def test_spans_of_the_caller_are_not_for_the_client(profile: bool) -> None:
    with blocking_device() as blocking:
        blocking.barrier.go.set()
        call = ExecutionCall()
        call.spans = SpanRecorder(operations=False)
        result = blocking.prepared.execute_synchronously(Sum.of(1).request, ExecutionConfig(profile=profile), call)
    assert [span.name for span in call.spans.all()][:2] == ["decode", "queue"]
    assert bool(result.spans) == profile
    assert call.device_ns > 0


def test_deadline_of_the_call_counts() -> None:
    with blocking_device() as blocking, pytest.raises(HalError) as late:
        blocking.prepared.execute_synchronously(Sum.of(1).request, call=ExecutionCall(now_ns() - 1))
    assert late.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
