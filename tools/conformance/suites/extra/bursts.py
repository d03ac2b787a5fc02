"""Bursts and reusable executions: kept memories, runs that overlap, inputs that change (EXTRA-07, -20, GEN-19)."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import Judge
from tools.conformance.paths import burst as bursts
from tools.conformance.paths.fenced import finish
from tools.conformance.paths.reusable import launch_once, reusing, run_once
from tools.conformance.paths.staged import read, staged
from tools.conformance.registry import check
from tools.conformance.request import build
from tools.conformance.samples import expect_right, named, prepared, request_of
from tools.conformance.suites.extra.fences import own_fence, signal
from tools.conformance.target import PLAIN, Answer, Executed, Run, Target, mapped

ADD, ENDLESS = "add_float", "while_without_end"

FAILURE, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT

SLOT, OTHER_SLOT = 7, 2**40

HEAD_START_S = 0.1
"""A call is under way after this, as a rule."""


def _inputs(factor: int) -> list[AnyArray]:
    """The inputs of ADD, each multiplied."""
    arrays = named(ADD).inputs
    return [np.asarray(array * factor, np.float32) for array in arrays if array is not None]


def _pool(factor: int) -> bytes:
    return build(_inputs(factor), [])[1]


def _expect_sum(judge: Judge, check_: str, executed: Executed, factor: int, what: str) -> None:
    """The outputs belong to inputs multiplied by a factor."""
    judge.expect(check_, executed.answer.status == ErrorStatus.NONE, what, "NONE", executed.answer)
    a, b = _inputs(factor)
    got = executed.outputs[0] if executed.outputs else None
    right = got is not None and got.tobytes() == np.maximum(a + b, 0).tobytes()
    judge.expect(check_, right, what, f"the outputs of inputs x{factor}", "other outputs")


# ---- Kept memories --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Burst:
    """A burst, called one way or the other."""

    target: Target
    handle: bytes
    streamed: bool

    @property
    def name(self) -> str:
        """What a person calls it."""
        return "over a stream" if self.streamed else "call by call"

    def execute(self, identifier: int, pool: types_pb2.Memory | None = None) -> Executed:
        """Executes ADD with its inputs in a memory with an identifier; None: the pool is left unset."""
        request = request_of(ADD)
        request.pools[0].ClearField("kind")
        if pool is not None:
            request.pools[0].pool.CopyFrom(pool)
        identifiers = [identifier, bursts.NOT_KEPT]
        message = bursts.plain_message(self.target, self.handle, request, identifiers, PLAIN)
        return self._only(message) if self.streamed else bursts.call(self.target, message)

    def release(self, identifier: int) -> Answer:
        """Forgets a memory."""
        if not self.streamed:
            return bursts.released(self.target, self.handle, identifier)
        return self._only(bursts.release_message(self.target, self.handle, identifier)).answer

    def _only(self, message: object) -> Executed:
        answers = bursts.stream(self.target, [message])
        if isinstance(answers, Answer):
            return Executed(answers)
        return bursts.outcome(self.target, answers[0]) if answers else Executed(Answer(FAILURE, "no answer"))


def _of_each_kind(id_: str, what: str) -> Callable[[Callable[[Target, Judge, _Burst], None]], None]:
    """Registers a check of a burst, call by call and over a stream."""

    def register(body: Callable[[Target, Judge, _Burst], None]) -> None:
        @check(id_, what)
        def both(target: Target, judge: Judge) -> None:
            for streamed in (False, True):
                with prepared(target, ADD) as model, bursts.bursting(target, model) as (answer, handle):
                    made = answer.status == ErrorStatus.NONE
                    judge.expect(id_, made, "configureExecutionBurst", "NONE", answer)
                    body(target, judge, _Burst(target, handle, streamed))

    return register


@_of_each_kind("EXTRA-20", "reuse of an identifier")
def reuse(target: Target, judge: Judge, burst: _Burst) -> None:
    """The memory is kept, and what it holds is read anew; identifiers do not mix."""
    handle = target.filled(_pool(1))
    other = types_pb2.Memory(inline=_pool(3))
    _expect_sum(judge, "EXTRA-20", burst.execute(SLOT, mapped(handle)), 1, f"{burst.name}, first use of {SLOT}")
    _expect_sum(judge, "EXTRA-20", burst.execute(OTHER_SLOT, other), 3, f"{burst.name}, first use of {OTHER_SLOT}")
    _expect_sum(judge, "EXTRA-20", burst.execute(SLOT), 1, f"{burst.name}, {SLOT} again, its pool unset")
    target.upload(handle, _pool(2))
    _expect_sum(judge, "EXTRA-20", burst.execute(SLOT), 2, f"{burst.name}, {SLOT} again, its memory rewritten")
    _expect_sum(judge, "EXTRA-20", burst.execute(OTHER_SLOT), 3, f"{burst.name}, {OTHER_SLOT} again")
    target.release(handle)
    _expect_sum(judge, "EXTRA-20", burst.execute(SLOT), 2, f"{burst.name}, {SLOT} again, its memory released")


@_of_each_kind("EXTRA-20", "release of an identifier")
def release(target: Target, judge: Judge, burst: _Burst) -> None:
    """It stands for nothing then, and for another memory later."""
    what = f"{burst.name}, "
    _expect_sum(judge, "EXTRA-20", burst.execute(SLOT, types_pb2.Memory(inline=_pool(1))), 1, f"{what}first use")
    answer = burst.release(SLOT)
    judge.expect("EXTRA-20", answer.status == ErrorStatus.NONE, f"{what}releaseMemoryResource", "NONE", answer)
    answer = burst.execute(SLOT).answer
    judge.expect("EXTRA-20", answer.status == INVALID, f"{what}a released identifier", "INVALID_ARGUMENT", answer)
    again = burst.execute(SLOT, types_pb2.Memory(inline=_pool(2)))
    _expect_sum(judge, "EXTRA-20", again, 2, f"{what}a released identifier with another memory")
    for identifier in (OTHER_SLOT, bursts.NOT_KEPT):
        answer = burst.release(identifier)
        what_ = f"{what}releaseMemoryResource({identifier}), which is not kept"
        judge.expect("EXTRA-20", answer.status == ErrorStatus.NONE, what_, "NONE", answer)


@_of_each_kind("EXTRA-20", "memories that are not kept")
def anonymous(target: Target, judge: Judge, burst: _Burst) -> None:
    """-1 stands for nothing."""
    for factor in (1, 2):
        executed = burst.execute(bursts.NOT_KEPT, types_pb2.Memory(inline=_pool(factor)))
        _expect_sum(judge, "EXTRA-20", executed, factor, f"{burst.name}, identifier -1")
    answer = burst.execute(bursts.NOT_KEPT).answer
    what = f"{burst.name}, identifier -1 without a memory"
    judge.expect("EXTRA-20", answer.status == INVALID, what, "INVALID_ARGUMENT", answer)


@_of_each_kind("EXTRA-20", "identifiers of another burst")
def another_burst(target: Target, judge: Judge, burst: _Burst) -> None:
    """Each burst has its own."""
    burst.execute(SLOT, types_pb2.Memory(inline=_pool(1)))
    with prepared(target, ADD) as model, bursts.bursting(target, model) as (_, handle):
        answer = replace(burst, handle=handle).execute(SLOT).answer
    what = f"{burst.name}, an identifier of another burst"
    judge.expect("EXTRA-20", answer.status == INVALID, what, "INVALID_ARGUMENT", answer)


@check("EXTRA-20", "a stream goes on after an error")
def stream_goes_on(target: Target, judge: Judge) -> None:
    """Calls are answered in order, each with its own outcome."""
    with prepared(target, ADD) as model, bursts.bursting(target, model) as (_, handle):
        messages = []
        for factor, identifiers in ((1, [-1, -1]), (2, [-2, -1]), (3, [-1, -1])):
            request = request_of(ADD)
            request.pools[0].pool.inline = _pool(factor)
            messages.append(bursts.plain_message(target, handle, request, identifiers, PLAIN))
        answers = bursts.stream(target, messages)
        whole = isinstance(answers, list) and len(answers) == len(messages)
        judge.expect("EXTRA-20", whole, "a stream of three executions", "three answers", answers)
        assert isinstance(answers, list)
        first, second, third = (bursts.outcome(target, answer) for answer in answers)
        _expect_sum(judge, "EXTRA-20", first, 1, "the first of a stream")
        refused = second.answer.status == INVALID
        judge.expect("EXTRA-20", refused, "the second, identifier -2", "INVALID_ARGUMENT", second.answer)
        _expect_sum(judge, "EXTRA-20", third, 3, "the third of a stream")


# ---- Runs that overlap ----------------------------------------------------------------------------------


@check("EXTRA-07", "overlapping runs of a reusable execution")
def overlapping_runs(target: Target, judge: Judge) -> None:
    """One run is in progress until its fence has ended."""
    with (
        prepared(target, ADD) as model,
        staged(target, request_of(ADD)) as made,
        reusing(target, model, made.request, types_pb2.ExecutionConfig()) as (answer, execution),
    ):
        judge.expect("EXTRA-07", answer.status == ErrorStatus.NONE, "createReusableExecution", "NONE", answer)
        gate = own_fence(target)
        begun = launch_once(target, execution, wait_for=[gate])
        judge.expect("EXTRA-07", begun.answer.status == ErrorStatus.NONE, "its launch", "NONE", begun.answer)
        for what, answer in (
            ("a synchronous run", run_once(target, execution).answer),
            ("a fenced launch", launch_once(target, execution).answer),
        ):
            busy = answer.status == FAILURE
            judge.expect("EXTRA-07", busy, f"{what} while another is in progress", "GENERAL_FAILURE", answer)
        signal(target, gate)
        expect_right(judge, "EXTRA-07", ADD, finish(target, begun.fence, made), "the run in progress")
        executed = run_once(target, execution)
        executed = replace(executed, outputs=read(executed, made))
        expect_right(judge, "EXTRA-07", ADD, executed, "a run after it")
        target.release(gate, begun.fence)


@check("EXTRA-07", "overlapping executions of a burst")
def overlapping_executions(target: Target, judge: Judge) -> None:
    """While an endless loop runs, the burst is busy."""
    answers: list[Answer] = []
    with prepared(target, ENDLESS) as model, bursts.bursting(target, model) as (_, handle):

        def execute(loop_timeout_ns: int) -> None:
            run = Run(loop_timeout_ns=loop_timeout_ns)
            message = bursts.plain_message(target, handle, request_of(ENDLESS), [-1, -1], run)
            answers.append(bursts.call(target, message).answer)

        thread = threading.Thread(target=execute, args=[2_000_000_000])
        thread.start()
        thread.join(HEAD_START_S)
        execute(0)
        thread.join()
    statuses = sorted(answer.status for answer in answers)
    one_was_refused = FAILURE in statuses and any(answer.is_missed_deadline for answer in answers)
    expected = "GENERAL_FAILURE for one, the loop's end for the other"
    judge.expect("EXTRA-07", one_was_refused, "two executions of a burst at once", expected, _said(answers))


def _said(answers: Sequence[Answer]) -> str:
    return ", ".join(map(str, answers))


# ---- Inputs that change ---------------------------------------------------------------------------------


@check("GEN-19", "with new inputs")
def new_inputs(target: Target, judge: Judge) -> None:
    """A reusable execution reads what its memory holds when it runs, synchronously or fenced."""
    handle = target.filled(_pool(1))
    request = request_of(ADD)
    request.pools[0].pool.CopyFrom(mapped(handle))
    with (
        prepared(target, ADD) as model,
        staged(target, request) as made,
        reusing(target, model, made.request, types_pb2.ExecutionConfig()) as (answer, execution),
    ):
        judge.expect("GEN-19", answer.status == ErrorStatus.NONE, "createReusableExecution", "NONE", answer)
        for factor in (1, 2, 3, 4):
            target.upload(handle, _pool(factor))
            executed = _run(target, execution, factor % 2 == 0)
            executed = replace(executed, outputs=read(executed, made))
            _expect_sum(judge, "GEN-19", executed, factor, f"run {factor} of a reusable execution")
    target.release(handle)


def _run(target: Target, execution: bytes, fenced: bool) -> Executed:
    if not fenced:
        return run_once(target, execution)
    begun = launch_once(target, execution)
    if begun.answer.status:
        return Executed(begun.answer)
    with staged(target, types_pb2.Request()) as nothing:
        executed = finish(target, begun.fence, nothing)
    target.release(begun.fence)
    return executed
