"""Fenced executions: callbacks, fences in error, durations, closed sessions (EXTRA-02, -04, -05, -06, -23)."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.calls import WATCHDOG_S
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
    supported_model,
)

ADD, ENDLESS = "add_float", "while_without_end"

SHORT_NS = 50_000_000
LONG_NS = 8_000_000_000
"""Less than the longest loop timeout, and longer than anything else in this module."""
LONGER_NS = 15_000_000_000

CALLS = {"executeFenced": launch, "executeFencedWithConfig": launch_with_config}


def create_fence(target: Target) -> bytes:
    """Create a fence that the client signals. Raise CheckFailed if Fence.Create fails."""
    outcome, response = target.call("Fence.Create")
    if response is None:
        raise CheckFailed("EXTRA-05", "Fence.Create", "NONE", outcome)
    fence: bytes = response.fence
    return fence


def signal_fence(target: Target, fence: bytes, *, error: bool = False) -> CallOutcome:
    """Call Fence.Signal."""
    return target.call("Fence.Signal", fence=fence, error=error)[0]


@dataclass(frozen=True)
class WaitingExecution:
    """Fenced execution of a built-in vector, which waits for fences of the client."""

    target: Target
    recorder: CheckRecorder
    name: str
    staged: StagedRequest
    fence: bytes
    awaited: Sequence[bytes]

    def signal(self, number: int = 0, *, error: bool = False) -> None:
        """Signal a fence of the client."""
        signal_fence(self.target, self.awaited[number], error=error)

    def expect_state(self, stimulus: str, state: int, timeout_ns: int = LONG_NS) -> None:
        """Wait for its fence, and expect a state."""
        waited, got = wait_for_fence(self.target, self.fence, timeout_ns)
        self.recorder.expect(got == state, stimulus, f"fence state {state}", f"{waited}, state {got}")

    def status(self) -> CallOutcome:
        """Return the status of getExecutionInfo, which must succeed."""
        info = self.recorder.require_response(get_execution_info(self.target, self.fence), "getExecutionInfo")
        return CallOutcome(info.status, info.reason)

    def expect_missed(self, stimulus: str) -> None:
        """Expect the fence to end in error well before the loop timeout, with a missed deadline."""
        self.expect_state(stimulus, ERROR)
        status = self.status()
        self.recorder.expect(status.is_missed_deadline, stimulus, "MISSED_DEADLINE_*", status)

    def expect_correct(self, stimulus: str) -> None:
        """Expect the execution to end with the outputs of the vector."""
        execution = await_execution(self.target, self.fence, self.staged)
        expect_correct(self.recorder, self.name, execution, stimulus)


@dataclass(frozen=True)
class WaitingLauncher:
    """Launcher of fenced executions that wait for fences of the client, for a check."""

    target: Target
    recorder: CheckRecorder

    @contextmanager
    def launch(
        self,
        model: bytes,
        name: str,
        run: RunOptions = DEFAULT_RUN,
        *,
        fences: int = 1,
        duration_ns: int | None = None,
        request: types_pb2.Request | None = None,
    ) -> Iterator[WaitingExecution]:
        """Launch an execution of a built-in vector. Its fence and those of the client are released at the end.

        `fences`: the number of fences of the client. `request`: by default that of the vector.
        """
        with staged_request(self.target, request or builtin_request(name)) as staged:
            awaited = [create_fence(self.target) for _ in range(fences)]
            launched = launch(self.target, model, staged.request, run, awaited, duration_ns)
            self.recorder.expect_status(launched.outcome, "executeFenced that waits for fences")
            try:
                yield WaitingExecution(self.target, self.recorder, name, staged, launched.fence, awaited)
            finally:
                self.target.release(launched.fence, *awaited)


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
            recorder.expect_status(launched.outcome, f"{name} with a duration of -2 ns", ErrorStatus.INVALID_ARGUMENT)


@check("EXTRA-04")
def _execution_info(target: Target, recorder: CheckRecorder) -> None:
    launcher = WaitingLauncher(target, recorder)
    with prepared_model(target, ADD) as model, launcher.launch(model, ADD) as execution:
        answer, info = get_execution_info(target, execution.fence)
        early = CallOutcome(info.status if info else answer.status)
        recorder.expect_status(early, "getExecutionInfo before the end", ErrorStatus.GENERAL_FAILURE)
        execution.signal()
        execution.expect_correct("a fenced execution")
        target.release(model)
        stimulus = "getExecutionInfo again, after the prepared model was released"
        recorder.expect_status(execution.status(), stimulus)


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
                recorder.expect_status(answer, f"{name} that waits for {situation}", ErrorStatus.INVALID_ARGUMENT)
        target.release(good, bad)


@check("EXTRA-05", "fence in error after launch")
def fence_in_error_after_launch(target: Target, recorder: CheckRecorder) -> None:
    """Check that the returned fence ends in error, and that the status is an error."""
    launcher = WaitingLauncher(target, recorder)
    with prepared_model(target, ADD) as model:
        for first in (False, True):
            with launcher.launch(model, ADD, fences=2) as execution:
                execution.signal(not first)
                execution.signal(first, error=True)
                stimulus = "an execution that waited for a fence that ended in error"
                execution.expect_state(stimulus, ERROR)
                status = execution.status()
                recorder.expect(status.status != ErrorStatus.NONE, stimulus, "an error", status)


@check("EXTRA-05", "several fences")
def several_fences(target: Target, recorder: CheckRecorder) -> None:
    """Check that the execution waits for all of its fences."""
    launcher = WaitingLauncher(target, recorder)
    with prepared_model(target, ADD) as model:
        for first in (False, True):
            with launcher.launch(model, ADD, fences=2) as execution:
                execution.signal(first)
                stimulus = "an execution that waits for two fences, of which one has signalled"
                execution.expect_state(stimulus, ACTIVE, SHORT_NS)
                written = [output for output in execution.staged.outputs() if output is not None and output.any()]
                recorder.expect(not written, f"{stimulus}: the outputs", "unchanged", "written")
                execution.signal(not first)
                execution.expect_state("both have signalled", SIGNALED)
                execution.expect_correct("both have signalled")


@check("EXTRA-06", "a duration counts from the last fence")
def duration_after_fences(target: Target, recorder: CheckRecorder) -> None:
    """Check that waiting for fences for longer than the duration is harmless."""
    launcher = WaitingLauncher(target, recorder)
    with prepared_model(target, ADD) as model:
        with launcher.launch(model, ADD, duration_ns=SHORT_NS) as execution:
            stimulus = "a duration that would end while waiting for fences"
            execution.expect_state(stimulus, ACTIVE, 2 * SHORT_NS)
        with launcher.launch(model, ADD, duration_ns=LONG_NS // 4) as execution:
            execution.signal()
            execution.expect_correct("an execution within its duration")


@check("EXTRA-06", "the earlier of duration and deadline applies")
def earlier_limit_applies(target: Target, recorder: CheckRecorder) -> None:
    """Check that the earlier of duration and deadline ends an endless loop with a timeout of 15 s."""
    cases = {
        "a short duration": (None, SHORT_NS),
        "a short deadline": (SHORT_NS, None),
        "a short duration and a long deadline": (LONGER_NS, SHORT_NS),
        "a short deadline and a long duration": (SHORT_NS, LONGER_NS),
    }
    launcher = WaitingLauncher(target, recorder)
    with prepared_model(target, ENDLESS) as model:
        for situation, (deadline_ns, duration_ns) in cases.items():
            run = RunOptions(deadline_ns=deadline_ns, loop_timeout_ns=LONGER_NS)
            with launcher.launch(model, ENDLESS, run, duration_ns=duration_ns) as execution:
                execution.signal()
                execution.expect_missed(f"an endless loop with {situation}")


@check("EXTRA-06", "a deadline while waiting for fences")
def deadline_while_waiting(target: Target, recorder: CheckRecorder) -> None:
    """Check that the deadline ends the wait for fences."""
    launcher, run = WaitingLauncher(target, recorder), RunOptions(deadline_ns=SHORT_NS)
    with prepared_model(target, ADD) as model, launcher.launch(model, ADD, run) as execution:
        execution.expect_missed("a deadline that passes while waiting for fences")


@check("EXTRA-23")
def _end_of_a_client(target: Target, recorder: CheckRecorder) -> None:
    with target.new_session() as other:
        fence = _launch_waiting_execution(other, recorder)
        thread = threading.Thread(target=wait_for_fence, args=[other, fence])
        thread.start()
        wait_for_fence(other, fence, SHORT_NS)  # By now, the call of the thread has usually arrived.
        other.call("Session.Close")
        thread.join(WATCHDOG_S / 4)
        stimulus = "waiting for a fence of a session that is closed"
        recorder.expect(not thread.is_alive(), stimulus, "the wait ends", "it does not")
        answer, info = get_execution_info(other, fence)
        recorder.expect(info is None, "a fence of a closed session", "an error", answer)


def _launch_waiting_execution(target: Target, recorder: CheckRecorder) -> bytes:
    """Return the fence of an execution that waits for ever. The end of the session releases its objects."""
    model = target.prepare(supported_model(target, builtin_case(ADD))).model
    launched = launch(
        target, model, StagedRequest(target, builtin_request(ADD)).request, DEFAULT_RUN, [create_fence(target)]
    )
    recorder.expect_status(launched.outcome, "executeFenced")
    return launched.fence
