"""Fenced executions: callbacks, fences in error, durations, closed sessions (EXTRA-02, -04, -05, -06, -23)."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnhal.types import ErrorStatus
from nnhal.v1 import fence_pb2, session_pb2, types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.calls import WATCHDOG_S, invoke
from nnhal_tools.conformance.device.options import DEFAULT_RUN, RunOptions
from nnhal_tools.conformance.device.results import CallOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.fenced import (
    ACTIVE,
    ERROR,
    SIGNALED,
    LaunchOutcome,
    await_execution,
    get_execution_info,
    launch,
    launch_with_config,
    wait_for_fence,
)
from nnhal_tools.conformance.paths.reusable import launch_reusable, reusable_execution
from nnhal_tools.conformance.paths.staged import StagedRequest, staged_request
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_request,
    expect_correct,
    prepared_model,
    require_supported,
)

ADD, ENDLESS = "add_float", "while_without_end"

SHORT_NS = 50_000_000
LONG_NS = 8_000_000_000
"""Less than the longest loop timeout, and longer than anything else in this module."""
LONGER_NS = 15_000_000_000

CALLS = {"executeFenced": launch, "executeFencedWithConfig": launch_with_config}


def create_fence(target: Target) -> bytes:
    """Create a fence that the client signals.

    Raises:
        CheckFailed: Fence.Create fails.
    """
    outcome, response = invoke(target.fences.Create, fence_pb2.CreateFenceRequest(session=target.session))
    if response is None:
        raise CheckFailed("EXTRA-05", "Fence.Create", "NONE", outcome)
    fence: bytes = response.fence
    return fence


def signal_fence(target: Target, fence: bytes, *, error: bool = False) -> CallOutcome:
    """Call Fence.Signal."""
    request = fence_pb2.SignalFenceRequest(session=target.session, fence=fence, error=error)
    return invoke(target.fences.Signal, request)[0]


@contextmanager
def waiting_execution(
    target: Target,
    recorder: CheckRecorder,
    check_: str,
    model: bytes,
    request: types_pb2.Request,
    fences: Sequence[bytes],
    run: RunOptions = DEFAULT_RUN,
    duration_ns: int | None = None,
) -> Iterator[tuple[StagedRequest, bytes]]:
    """Launch a fenced execution that waits for fences.

    Yields:
        Its request and its fence. The fences are released at the end.
    """
    with staged_request(target, request) as staged:
        launched = launch(target, model, staged.request, run, fences, duration_ns)
        recorder.expect(
            check_, launched.outcome.status == 0, "executeFenced that waits for fences", "NONE", launched.outcome
        )
        try:
            yield staged, launched.fence
        finally:
            target.release(launched.fence, *fences)


def _expect_state(
    recorder: CheckRecorder, check_: str, stimulus: str, state: int, waited: tuple[CallOutcome, int]
) -> None:
    recorder.expect(check_, waited[1] == state, stimulus, f"fence state {state}", f"{waited[0]}, state {waited[1]}")


def _status(recorder: CheckRecorder, check_: str, target: Target, fence: bytes) -> CallOutcome:
    answer, info = get_execution_info(target, fence)
    recorder.expect(check_, info is not None, "getExecutionInfo", "NONE", answer)
    assert info is not None
    return CallOutcome(info.status, info.reason)


@check("EXTRA-02", "durations")
def negative_durations(target: Target, recorder: CheckRecorder) -> None:
    """Check that every fenced call rejects a duration of -2."""
    with prepared_model(target, ADD) as model, staged_request(target, builtin_request(ADD)) as staged:
        launches: dict[str, LaunchOutcome] = {
            name: start(target, model, staged.request, DEFAULT_RUN, (), -2) for name, start in CALLS.items()
        }
        with reusable_execution(target, model, staged.request, types_pb2.ExecutionConfig()) as (_, execution):
            launches["IExecution.executeFenced"] = launch_reusable(target, execution, duration_ns=-2)
        for name, launched in launches.items():
            refused = launched.outcome.status == ErrorStatus.INVALID_ARGUMENT
            recorder.expect(
                "EXTRA-02", refused, f"{name} with a duration of -2 ns", "INVALID_ARGUMENT", launched.outcome
            )


@check("EXTRA-04")
def execution_info(target: Target, recorder: CheckRecorder) -> None:
    """Check getExecutionInfo before the end, twice after it, and after the release of the model."""
    own_fence = create_fence(target)
    with (
        prepared_model(target, ADD) as model,
        waiting_execution(target, recorder, "EXTRA-04", model, builtin_request(ADD), [own_fence]) as (
            staged,
            fence,
        ),
    ):
        answer, info = get_execution_info(target, fence)
        early = info.status if info else answer.status
        too_early = early == ErrorStatus.GENERAL_FAILURE
        recorder.expect("EXTRA-04", too_early, "getExecutionInfo before the end", "GENERAL_FAILURE", CallOutcome(early))
        signal_fence(target, own_fence)
        expect_correct(recorder, "EXTRA-04", ADD, await_execution(target, fence, staged), "a fenced execution")
        target.release(model)
        again = _status(recorder, "EXTRA-04", target, fence)
        stimulus = "getExecutionInfo again, after the prepared model was released"
        recorder.expect("EXTRA-04", again.status == ErrorStatus.NONE, stimulus, "NONE", again)


@check("EXTRA-05", "fence in error at launch")
def fence_in_error_at_launch(target: Target, recorder: CheckRecorder) -> None:
    """Check that a launch rejects a fence in error, at any position, and an unknown fence."""
    with prepared_model(target, ADD) as model, staged_request(target, builtin_request(ADD)) as staged:
        good, bad = create_fence(target), create_fence(target)
        signal_fence(target, good)
        signal_fence(target, bad, error=True)
        for situation, fences in (
            ("a fence in error", [bad]),
            ("a signalled fence and one in error", [good, bad]),
            ("a fence in error and a signalled one", [bad, good]),
            ("an unknown fence", [b"unknown"]),
        ):
            for name, start in CALLS.items():
                answer = start(target, model, staged.request, DEFAULT_RUN, fences).outcome
                refused = answer.status == ErrorStatus.INVALID_ARGUMENT
                recorder.expect("EXTRA-05", refused, f"{name} that waits for {situation}", "INVALID_ARGUMENT", answer)
        target.release(good, bad)


@check("EXTRA-05", "fence in error after launch")
def fence_in_error_after_launch(target: Target, recorder: CheckRecorder) -> None:
    """Check that the returned fence ends in error, and that the status is an error."""
    with prepared_model(target, ADD) as model:
        for first in (False, True):
            fences = [create_fence(target), create_fence(target)]
            with waiting_execution(target, recorder, "EXTRA-05", model, builtin_request(ADD), fences) as (_, fence):
                signal_fence(target, fences[not first])
                signal_fence(target, fences[first], error=True)
                stimulus = "an execution that waited for a fence that ended in error"
                _expect_state(recorder, "EXTRA-05", stimulus, ERROR, wait_for_fence(target, fence, LONG_NS))
                status = _status(recorder, "EXTRA-05", target, fence)
                recorder.expect("EXTRA-05", status.status != ErrorStatus.NONE, stimulus, "an error", status)


@check("EXTRA-05", "several fences")
def several_fences(target: Target, recorder: CheckRecorder) -> None:
    """Check that the execution waits for all of its fences."""
    with prepared_model(target, ADD) as model:
        for first in (False, True):
            fences = [create_fence(target), create_fence(target)]
            with waiting_execution(target, recorder, "EXTRA-05", model, builtin_request(ADD), fences) as (
                staged,
                fence,
            ):
                signal_fence(target, fences[first])
                stimulus = "an execution that waits for two fences, of which one has signalled"
                _expect_state(recorder, "EXTRA-05", stimulus, ACTIVE, wait_for_fence(target, fence, SHORT_NS))
                written = [output for output in staged.outputs() if output is not None and output.any()]
                recorder.expect("EXTRA-05", not written, f"{stimulus}: the outputs", "unchanged", "written")
                signal_fence(target, fences[not first])
                _expect_state(
                    recorder, "EXTRA-05", "both have signalled", SIGNALED, wait_for_fence(target, fence, LONG_NS)
                )
                expect_correct(recorder, "EXTRA-05", ADD, await_execution(target, fence, staged), "both have signalled")


def _expect_missed(target: Target, recorder: CheckRecorder, fence: bytes, stimulus: str) -> None:
    """Expect the fence to end in error well before the loop timeout, with a missed deadline."""
    _expect_state(recorder, "EXTRA-06", stimulus, ERROR, wait_for_fence(target, fence, LONG_NS))
    status = _status(recorder, "EXTRA-06", target, fence)
    recorder.expect("EXTRA-06", status.is_missed_deadline, stimulus, "MISSED_DEADLINE_*", status)


@check("EXTRA-06", "a duration counts from the last fence")
def duration_after_fences(target: Target, recorder: CheckRecorder) -> None:
    """Check that waiting for fences for longer than the duration is harmless."""
    own_fence = create_fence(target)
    duration_ns = LONG_NS // 4
    with prepared_model(target, ADD) as model:
        request = builtin_request(ADD)
        with waiting_execution(target, recorder, "EXTRA-06", model, request, [own_fence], duration_ns=SHORT_NS) as (
            _,
            fence,
        ):
            waited = wait_for_fence(target, fence, 2 * SHORT_NS)
            _expect_state(recorder, "EXTRA-06", "a duration that would end while waiting for fences", ACTIVE, waited)
        own_fence = create_fence(target)
        with waiting_execution(target, recorder, "EXTRA-06", model, request, [own_fence], duration_ns=duration_ns) as (
            staged,
            fence,
        ):
            signal_fence(target, own_fence)
            expect_correct(
                recorder, "EXTRA-06", ADD, await_execution(target, fence, staged), "an execution within its duration"
            )


@check("EXTRA-06", "the earlier of duration and deadline applies")
def earlier_limit_applies(target: Target, recorder: CheckRecorder) -> None:
    """Check that the earlier of duration and deadline ends an endless loop with a timeout of 15 s."""
    cases = {
        "a short duration": (None, SHORT_NS),
        "a short deadline": (SHORT_NS, None),
        "a short duration and a long deadline": (LONGER_NS, SHORT_NS),
        "a short deadline and a long duration": (SHORT_NS, LONGER_NS),
    }
    with prepared_model(target, ENDLESS) as model:
        for situation, (deadline_ns, duration_ns) in cases.items():
            own_fence = create_fence(target)
            run = RunOptions(deadline_ns=deadline_ns, loop_timeout_ns=LONGER_NS)
            request = builtin_request(ENDLESS)
            with waiting_execution(target, recorder, "EXTRA-06", model, request, [own_fence], run, duration_ns) as (
                _,
                fence,
            ):
                signal_fence(target, own_fence)
                _expect_missed(target, recorder, fence, f"an endless loop with {situation}")


@check("EXTRA-06", "a deadline while waiting for fences")
def deadline_while_waiting(target: Target, recorder: CheckRecorder) -> None:
    """Check that the deadline ends the wait for fences."""
    own_fence = create_fence(target)
    run = RunOptions(deadline_ns=SHORT_NS)
    with (
        prepared_model(target, ADD) as model,
        waiting_execution(target, recorder, "EXTRA-06", model, builtin_request(ADD), [own_fence], run) as (_, fence),
    ):
        _expect_missed(target, recorder, fence, "a deadline that passes while waiting for fences")


@check("EXTRA-23")
def end_of_a_client(target: Target, recorder: CheckRecorder) -> None:
    """Check that closing a session wakes its waiting calls and frees its objects."""
    with target.new_session() as other:
        fence = _launch_waiting_execution(other, recorder)
        thread = threading.Thread(target=wait_for_fence, args=[other, fence])
        thread.start()
        wait_for_fence(other, fence, SHORT_NS)  # By now, the call of the thread has usually arrived.
        invoke(other.sessions.Close, session_pb2.CloseRequest(session=other.session))
        thread.join(WATCHDOG_S / 4)
        stimulus = "waiting for a fence of a session that is closed"
        recorder.expect("EXTRA-23", not thread.is_alive(), stimulus, "the wait ends", "it does not")
        answer, info = get_execution_info(other, fence)
        recorder.expect("EXTRA-23", info is None, "a fence of a closed session", "an error", answer)


def _launch_waiting_execution(target: Target, recorder: CheckRecorder) -> bytes:
    """Return the fence of an execution that waits for ever. The end of the session releases its objects."""
    model = target.prepare(require_supported(target, builtin_case(ADD)).model()).model
    launched = launch(
        target, model, StagedRequest(target, builtin_request(ADD)).request, DEFAULT_RUN, [create_fence(target)]
    )
    recorder.expect("EXTRA-23", launched.outcome.status == ErrorStatus.NONE, "executeFenced", "NONE", launched.outcome)
    return launched.fence
