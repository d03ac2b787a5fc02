"""Bursts and reusable executions: memory caches, overlapping runs, changed inputs (EXTRA-07, -20, GEN-19)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import DEFAULT_RUN, RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.paths import burst as bursts
from nnhal_tools.conformance.paths.fenced import await_execution
from nnhal_tools.conformance.paths.reusable import execute_reusable, launch_reusable, reusable_execution
from nnhal_tools.conformance.paths.staged import read_outputs, staged_request
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.fences import create_fence, signal_fence
from nnhal_tools.conformance.vectors.requests import build_request
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, expect_correct, prepared_model

ADD, ENDLESS = "add_float", "while_without_end"

FAILURE, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT

SLOT, OTHER_SLOT = 7, 2**40

START_DELAY_S = 0.1
"""Delay after which a call has usually started."""


def _inputs(factor: int) -> list[AnyArray]:
    """Return the inputs of ADD, multiplied by a factor."""
    arrays = builtin_case(ADD).inputs
    return [np.asarray(array * factor, np.float32) for array in arrays if array is not None]


def _pool(factor: int) -> bytes:
    return build_request(_inputs(factor), [])[1]


def _expect_sum(recorder: CheckRecorder, execution: ExecutionOutcome, factor: int, stimulus: str) -> None:
    """Expect the outputs of inputs that were multiplied by a factor."""
    recorder.expect_status(execution.outcome, stimulus)
    a, b = _inputs(factor)
    right = execution.output_bytes == [np.maximum(a + b, 0).tobytes()]
    recorder.expect(right, stimulus, f"the outputs of inputs x{factor}", "other outputs")


# ---- Cached memories ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TestBurst:
    """Burst that is called by single calls or over a stream."""

    target: Target
    handle: bytes
    streamed: bool

    @property
    def name(self) -> str:
        """Name in failure messages."""
        return "over a stream" if self.streamed else "by single calls"

    def execute(self, identifier: int, pool: types_pb2.Memory | None = None) -> ExecutionOutcome:
        """Execute ADD with its inputs in a pool with an identifier. `pool`: None to leave it unset."""
        request = builtin_request(ADD)
        request.pools[0].ClearField("kind")
        if pool is not None:
            request.pools[0].pool.CopyFrom(pool)
        identifiers = [identifier, bursts.NO_IDENTIFIER]
        message = bursts.execute_message(self.target, self.handle, request, identifiers, DEFAULT_RUN)
        execute = bursts.call_on_stream if self.streamed else bursts.execute_burst
        return execute(self.target, message)

    def release(self, identifier: int) -> CallOutcome:
        """Release a memory identifier."""
        if not self.streamed:
            return bursts.release_memory(self.target, self.handle, identifier)
        return bursts.call_on_stream(self.target, bursts.release_message(self.target, self.handle, identifier)).outcome


def _burst_check(id_: str, title: str) -> Callable[[Callable[[Target, CheckRecorder, _TestBurst], None]], None]:
    """Register a check of a burst, for single calls and for a stream."""

    def register(body: Callable[[Target, CheckRecorder, _TestBurst], None]) -> None:
        @check(id_, title)
        def single_calls_and_stream(target: Target, recorder: CheckRecorder) -> None:
            for streamed in (False, True):
                with prepared_model(target, ADD) as model, bursts.open_burst(target, model) as (answer, handle):
                    recorder.expect_status(answer, "configureExecutionBurst")
                    body(target, recorder, _TestBurst(target, handle, streamed))

    return register


@_burst_check("EXTRA-20", "reuse of an identifier")
def reuse(target: Target, recorder: CheckRecorder, burst: _TestBurst) -> None:
    """Check that a cached memory is read again for each execution, and that identifiers are independent."""
    handle = target.memory_with(_pool(1))
    other = types_pb2.Memory(inline=_pool(3))
    _expect_sum(recorder, burst.execute(SLOT, mapped_pool(handle)), 1, f"{burst.name}, first use of {SLOT}")
    _expect_sum(recorder, burst.execute(OTHER_SLOT, other), 3, f"{burst.name}, first use of {OTHER_SLOT}")
    _expect_sum(recorder, burst.execute(SLOT), 1, f"{burst.name}, {SLOT} again, its pool unset")
    target.upload(handle, _pool(2))
    _expect_sum(recorder, burst.execute(SLOT), 2, f"{burst.name}, {SLOT} again, its memory rewritten")
    _expect_sum(recorder, burst.execute(OTHER_SLOT), 3, f"{burst.name}, {OTHER_SLOT} again")
    target.release(handle)
    _expect_sum(recorder, burst.execute(SLOT), 2, f"{burst.name}, {SLOT} again, its memory released")


@_burst_check("EXTRA-20", "release of an identifier")
def release(target: Target, recorder: CheckRecorder, burst: _TestBurst) -> None:
    """Check that a released identifier is unknown, and can then be used for another memory."""
    _expect_sum(recorder, burst.execute(SLOT, types_pb2.Memory(inline=_pool(1))), 1, f"{burst.name}, first use")
    answer = burst.release(SLOT)
    recorder.expect_status(answer, f"{burst.name}, releaseMemoryResource")
    answer = burst.execute(SLOT).outcome
    recorder.expect_status(answer, f"{burst.name}, a released identifier", INVALID)
    again = burst.execute(SLOT, types_pb2.Memory(inline=_pool(2)))
    _expect_sum(recorder, again, 2, f"{burst.name}, a released identifier with another memory")
    for identifier in (OTHER_SLOT, bursts.NO_IDENTIFIER):
        answer = burst.release(identifier)
        stimulus = f"{burst.name}, releaseMemoryResource({identifier}), which is not cached"
        recorder.expect_status(answer, stimulus)


@_burst_check("EXTRA-20", "memories without an identifier")
def no_identifier(target: Target, recorder: CheckRecorder, burst: _TestBurst) -> None:
    """Check that identifier -1 never caches a memory."""
    for factor in (1, 2):
        execution = burst.execute(bursts.NO_IDENTIFIER, types_pb2.Memory(inline=_pool(factor)))
        _expect_sum(recorder, execution, factor, f"{burst.name}, identifier -1")
    answer = burst.execute(bursts.NO_IDENTIFIER).outcome
    stimulus = f"{burst.name}, identifier -1 without a memory"
    recorder.expect_status(answer, stimulus, INVALID)


@_burst_check("EXTRA-20", "identifiers of another burst")
def another_burst(target: Target, recorder: CheckRecorder, burst: _TestBurst) -> None:
    """Check that each burst has its own identifiers."""
    burst.execute(SLOT, types_pb2.Memory(inline=_pool(1)))
    with prepared_model(target, ADD) as model, bursts.open_burst(target, model) as (_, handle):
        answer = replace(burst, handle=handle).execute(SLOT).outcome
    stimulus = f"{burst.name}, an identifier of another burst"
    recorder.expect_status(answer, stimulus, INVALID)


@check("EXTRA-20", "a stream continues after an error")
def stream_continues_after_error(target: Target, recorder: CheckRecorder) -> None:
    """Check that a stream returns the outcome of each call in order, and continues after an error."""
    with prepared_model(target, ADD) as model, bursts.open_burst(target, model) as (_, handle):
        messages = []
        for factor, identifiers in ((1, [-1, -1]), (2, [-2, -1]), (3, [-1, -1])):
            request = builtin_request(ADD)
            request.pools[0].pool.inline = _pool(factor)
            messages.append(bursts.execute_message(target, handle, request, identifiers, DEFAULT_RUN))
        responses = bursts.call_stream(target, messages)
        complete = isinstance(responses, list) and len(responses) == len(messages)
        recorder.expect(complete, "a stream of three executions", "three responses", responses)
        assert isinstance(responses, list)
        first, second, third = (bursts.stream_outcome(target, response) for response in responses)
        _expect_sum(recorder, first, 1, "the first of a stream")
        recorder.expect_status(second.outcome, "the second, identifier -2", INVALID)
        _expect_sum(recorder, third, 3, "the third of a stream")


# ---- Overlapping runs -----------------------------------------------------------------------------------


@check("EXTRA-07", "overlapping runs of a reusable execution")
def overlapping_runs(target: Target, recorder: CheckRecorder) -> None:
    """Check that a run fails while another one is in progress, that is, until its fence is signalled."""
    with (
        prepared_model(target, ADD) as model,
        staged_request(target, builtin_request(ADD)) as staged,
        reusable_execution(target, model, staged.request, types_pb2.ExecutionConfig()) as (answer, handle),
    ):
        recorder.expect_status(answer, "createReusableExecution")
        own_fence = create_fence(target)
        launched = launch_reusable(target, handle, wait_for=[own_fence])
        recorder.expect_status(launched.outcome, "launching a reusable execution")
        for call, answer in (
            ("a synchronous run", execute_reusable(target, handle).outcome),
            ("a fenced launch", launch_reusable(target, handle).outcome),
        ):
            recorder.expect_status(answer, f"{call} while another is in progress", FAILURE)
        signal_fence(target, own_fence)
        expect_correct(recorder, ADD, await_execution(target, launched.fence, staged), "the run in progress")
        execution = execute_reusable(target, handle)
        execution = replace(execution, outputs=read_outputs(execution, staged))
        expect_correct(recorder, ADD, execution, "a run after another has ended")
        target.release(own_fence, launched.fence)


@check("EXTRA-07", "overlapping executions of a burst")
def overlapping_executions(target: Target, recorder: CheckRecorder) -> None:
    """Check that a burst is busy while it runs an endless loop."""
    with prepared_model(target, ENDLESS) as model, bursts.open_burst(target, model) as (_, handle):

        def execute(loop_timeout_ns: int) -> CallOutcome:
            run = RunOptions(loop_timeout_ns=loop_timeout_ns)
            message = bursts.execute_message(target, handle, builtin_request(ENDLESS), [-1, -1], run)
            return bursts.execute_burst(target, message).outcome

        with ThreadPoolExecutor(1) as thread:
            first = thread.submit(execute, 2_000_000_000)
            wait([first], START_DELAY_S)
            answers = [execute(0), first.result()]
    statuses = sorted(answer.status for answer in answers)
    one_is_busy = FAILURE in statuses and any(answer.is_missed_deadline for answer in answers)
    expected = "GENERAL_FAILURE for one, MISSED_DEADLINE_* for the other"
    got = ", ".join(map(str, answers))
    recorder.expect(one_is_busy, "two executions of a burst at once", expected, got)


# ---- Changed inputs -------------------------------------------------------------------------------------


@check("GEN-19", "changed inputs")
def new_inputs(target: Target, recorder: CheckRecorder) -> None:
    """Check that each run of a reusable execution, synchronous or fenced, reads the current inputs."""
    handle = target.memory_with(_pool(1))
    request = builtin_request(ADD)
    request.pools[0].pool.CopyFrom(mapped_pool(handle))
    with (
        prepared_model(target, ADD) as model,
        staged_request(target, request) as staged,
        reusable_execution(target, model, staged.request, types_pb2.ExecutionConfig()) as (answer, reusable),
    ):
        recorder.expect_status(answer, "createReusableExecution")
        for factor in (1, 2, 3, 4):
            target.upload(handle, _pool(factor))
            execution = _run(target, reusable, factor % 2 == 0)
            execution = replace(execution, outputs=read_outputs(execution, staged))
            _expect_sum(recorder, execution, factor, f"run {factor} of a reusable execution")
    target.release(handle)


def _run(target: Target, reusable: bytes, fenced: bool) -> ExecutionOutcome:
    if not fenced:
        return execute_reusable(target, reusable)
    launched = launch_reusable(target, reusable)
    if launched.outcome.status:
        return ExecutionOutcome(launched.outcome)
    with staged_request(target, types_pb2.Request()) as empty:
        execution = await_execution(target, launched.fence, empty)
    target.release(launched.fence)
    return execution
