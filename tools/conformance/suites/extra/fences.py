"""Fenced executions: callbacks, fences in error, durations, the end of a client (EXTRA-02, -04, -05, -06, -23)."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnhal.types import ErrorStatus
from nnhal.v1 import fence_pb2, session_pb2, types_pb2
from tools.conformance.check import CheckFailed, Judge
from tools.conformance.paths.fenced import (
    ACTIVE,
    ERROR,
    SIGNALED,
    Launched,
    finish,
    info,
    launch,
    launch_with_config,
    wait,
)
from tools.conformance.paths.reusable import launch_once, reusing
from tools.conformance.paths.staged import Staged, staged
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, named, prepared, request_of, taken
from tools.conformance.target import PLAIN, WATCHDOG_S, Answer, Run, Target, called

ADD, ENDLESS = "add_float", "while_without_end"

A_LITTLE_NS = 50_000_000
LONG_NS = 8_000_000_000
"""Less than the longest loop timeout, and more than anything else here takes."""
LONGER_NS = 15_000_000_000

CALLS = {"executeFenced": launch, "executeFencedWithConfig": launch_with_config}


def own_fence(target: Target) -> bytes:
    """A fence of the client's own.

    Raises:
        CheckFailed: there is none to be had.
    """
    answer, made = called(target.fences.Create, fence_pb2.CreateFenceRequest(session=target.session))
    if made is None:
        raise CheckFailed("EXTRA-05", "Fence.Create", "NONE", answer)
    fence: bytes = made.fence
    return fence


def signal(target: Target, fence: bytes, *, error: bool = False) -> Answer:
    """Fence.Signal."""
    request = fence_pb2.SignalFenceRequest(session=target.session, fence=fence, error=error)
    return called(target.fences.Signal, request)[0]


@contextmanager
def waiting(
    target: Target,
    judge: Judge,
    check_: str,
    model: bytes,
    request: types_pb2.Request,
    fences: Sequence[bytes],
    run: Run = PLAIN,
    duration_ns: int | None = None,
) -> Iterator[tuple[Staged, bytes]]:
    """A fenced execution that waits for fences: its request and its fence. Both are dropped at the end."""
    with staged(target, request) as made:
        begun = launch(target, model, made.request, run, fences, duration_ns)
        judge.expect(check_, begun.answer.status == 0, "executeFenced that waits for fences", "NONE", begun.answer)
        try:
            yield made, begun.fence
        finally:
            target.release(begun.fence, *fences)


def _expect_state(judge: Judge, check_: str, what: str, wanted: int, found: tuple[Answer, int]) -> None:
    judge.expect(check_, found[1] == wanted, what, f"fence state {wanted}", f"{found[0]}, state {found[1]}")


def _status(judge: Judge, check_: str, target: Target, fence: bytes) -> Answer:
    answer, told = info(target, fence)
    judge.expect(check_, told is not None, "getExecutionInfo", "NONE", answer)
    assert told is not None
    return Answer(told.status, told.reason)


@check("EXTRA-02", "of durations")
def negative_durations(target: Target, judge: Judge) -> None:
    """A duration of -2, by every call."""
    with prepared(target, ADD) as model, staged(target, request_of(ADD)) as made:
        begun: dict[str, Launched] = {
            name: start(target, model, made.request, PLAIN, (), -2) for name, start in CALLS.items()
        }
        with reusing(target, model, made.request, types_pb2.ExecutionConfig()) as (_, execution):
            begun["IExecution.executeFenced"] = launch_once(target, execution, duration_ns=-2)
        for name, one in begun.items():
            refused = one.answer.status == ErrorStatus.INVALID_ARGUMENT
            judge.expect("EXTRA-02", refused, f"{name} with a duration of -2 ns", "INVALID_ARGUMENT", one.answer)


@check("EXTRA-04")
def execution_info(target: Target, judge: Judge) -> None:
    """Too early, again, and when the model is gone."""
    gate = own_fence(target)
    with (
        prepared(target, ADD) as model,
        waiting(target, judge, "EXTRA-04", model, request_of(ADD), [gate]) as (
            made,
            fence,
        ),
    ):
        answer, told = info(target, fence)
        early = told.status if told else answer.status
        too_early = early == ErrorStatus.GENERAL_FAILURE
        judge.expect("EXTRA-04", too_early, "getExecutionInfo before the end", "GENERAL_FAILURE", Answer(early))
        signal(target, gate)
        expect_right(judge, "EXTRA-04", ADD, finish(target, fence, made), "a fenced execution")
        target.release(model)
        again = _status(judge, "EXTRA-04", target, fence)
        what = "getExecutionInfo again, after the prepared model was released"
        judge.expect("EXTRA-04", again.status == ErrorStatus.NONE, what, "NONE", again)


@check("EXTRA-05", "at launch")
def fence_in_error_at_launch(target: Target, judge: Judge) -> None:
    """Whichever of several it is; a fence that is not there is refused, too."""
    with prepared(target, ADD) as model, staged(target, request_of(ADD)) as made:
        good, bad = own_fence(target), own_fence(target)
        signal(target, good)
        signal(target, bad, error=True)
        for what, fences in (
            ("a fence in error", [bad]),
            ("a signalled fence and one in error", [good, bad]),
            ("a fence in error and a signalled one", [bad, good]),
            ("a fence that is not there", [b"nothing"]),
        ):
            for name, start in CALLS.items():
                answer = start(target, model, made.request, PLAIN, fences).answer
                refused = answer.status == ErrorStatus.INVALID_ARGUMENT
                judge.expect("EXTRA-05", refused, f"{name} that waits for {what}", "INVALID_ARGUMENT", answer)
        target.release(good, bad)


@check("EXTRA-05", "later")
def fence_in_error_later(target: Target, judge: Judge) -> None:
    """The returned fence is in error, and the status is one."""
    with prepared(target, ADD) as model:
        for first in (False, True):
            fences = [own_fence(target), own_fence(target)]
            with waiting(target, judge, "EXTRA-05", model, request_of(ADD), fences) as (_, fence):
                signal(target, fences[not first])
                signal(target, fences[first], error=True)
                what = "an execution that waited for a fence that ended in error"
                _expect_state(judge, "EXTRA-05", what, ERROR, wait(target, fence, LONG_NS))
                status = _status(judge, "EXTRA-05", target, fence)
                judge.expect("EXTRA-05", status.status != ErrorStatus.NONE, what, "an error", status)


@check("EXTRA-05", "none of several is ignored")
def several_fences(target: Target, judge: Judge) -> None:
    """Nothing happens before the last has signalled."""
    with prepared(target, ADD) as model:
        for first in (False, True):
            fences = [own_fence(target), own_fence(target)]
            with waiting(target, judge, "EXTRA-05", model, request_of(ADD), fences) as (made, fence):
                signal(target, fences[first])
                what = "an execution that waits for two fences, of which one has signalled"
                _expect_state(judge, "EXTRA-05", what, ACTIVE, wait(target, fence, A_LITTLE_NS))
                written = [output for output in made.outputs() if output is not None and output.any()]
                judge.expect("EXTRA-05", not written, f"{what}: the outputs", "untouched", "written")
                signal(target, fences[not first])
                _expect_state(judge, "EXTRA-05", "both have signalled", SIGNALED, wait(target, fence, LONG_NS))
                expect_right(judge, "EXTRA-05", ADD, finish(target, fence, made), "both have signalled")


def _expect_missed(target: Target, judge: Judge, fence: bytes, what: str) -> None:
    """The fence ends in error well before a loop's timeout, and the deadline was missed."""
    _expect_state(judge, "EXTRA-06", what, ERROR, wait(target, fence, LONG_NS))
    status = _status(judge, "EXTRA-06", target, fence)
    judge.expect("EXTRA-06", status.is_missed_deadline, what, "MISSED_DEADLINE_*", status)


@check("EXTRA-06", "a duration counts from the last fence")
def duration_after_fences(target: Target, judge: Judge) -> None:
    """Waiting takes longer than the duration, and does no harm."""
    gate = own_fence(target)
    duration_ns = LONG_NS // 4
    with prepared(target, ADD) as model:
        request = request_of(ADD)
        with waiting(target, judge, "EXTRA-06", model, request, [gate], duration_ns=A_LITTLE_NS) as (_, fence):
            waited = wait(target, fence, 2 * A_LITTLE_NS)
            _expect_state(judge, "EXTRA-06", "a duration that is over while fences are waited for", ACTIVE, waited)
        gate = own_fence(target)
        with waiting(target, judge, "EXTRA-06", model, request, [gate], duration_ns=duration_ns) as (made, fence):
            signal(target, gate)
            expect_right(judge, "EXTRA-06", ADD, finish(target, fence, made), "an execution within its duration")


@check("EXTRA-06", "the earlier of duration and deadline wins")
def earlier_wins(target: Target, judge: Judge) -> None:
    """An endless loop that could go on for 15 s."""
    cases = {
        "a short duration": (None, A_LITTLE_NS),
        "a short deadline": (A_LITTLE_NS, None),
        "a short duration and a long deadline": (LONGER_NS, A_LITTLE_NS),
        "a short deadline and a long duration": (A_LITTLE_NS, LONGER_NS),
    }
    with prepared(target, ENDLESS) as model:
        for what, (deadline_ns, duration_ns) in cases.items():
            gate = own_fence(target)
            run = Run(deadline_ns=deadline_ns, loop_timeout_ns=LONGER_NS)
            request = request_of(ENDLESS)
            with waiting(target, judge, "EXTRA-06", model, request, [gate], run, duration_ns) as (_, fence):
                signal(target, gate)
                _expect_missed(target, judge, fence, f"an endless loop with {what}")


@check("EXTRA-06", "a deadline while fences are waited for")
def deadline_while_waiting(target: Target, judge: Judge) -> None:
    """The wait ends with the deadline."""
    gate = own_fence(target)
    run = Run(deadline_ns=A_LITTLE_NS)
    with (
        prepared(target, ADD) as model,
        waiting(target, judge, "EXTRA-06", model, request_of(ADD), [gate], run) as (_, fence),
    ):
        _expect_missed(target, judge, fence, "a deadline that passes while fences are waited for")


@check("EXTRA-23")
def end_of_a_client(target: Target, judge: Judge) -> None:
    """Who waits for its fences is woken; what it held is gone."""
    with target.another() as other:
        fence = _held_by(other, judge)
        thread = threading.Thread(target=wait, args=[other, fence])
        thread.start()
        wait(other, fence, A_LITTLE_NS)  # the thread's call is there by now, as a rule
        called(other.sessions.Close, session_pb2.CloseRequest(session=other.session))
        thread.join(WATCHDOG_S / 4)
        what = "waiting for a fence of a session that is closed"
        judge.expect("EXTRA-23", not thread.is_alive(), what, "an end of the wait", "none")
        answer, told = info(other, fence)
        judge.expect("EXTRA-23", told is None, "a fence of a closed session", "an error", answer)


def _held_by(target: Target, judge: Judge) -> bytes:
    """The fence of an execution that waits for ever. Its session ends, so nothing is dropped here."""
    model = target.prepare(taken(target, named(ADD)).model()).model
    begun = launch(target, model, Staged(target, request_of(ADD)).request, PLAIN, [own_fence(target)])
    judge.expect("EXTRA-23", begun.answer.status == ErrorStatus.NONE, "executeFenced", "NONE", begun.answer)
    return begun.fence
