"""Deadlines: work whose deadline has passed is not done, and a later deadline is met (NNHAL-01, -02, -42)."""

from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import RunOptions, both_preparations
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.paths import reachable_calls
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_request,
    expect_correct,
    prepared_model,
    supported_model,
)

SENTINEL = b"\xa5"

HOUR_NS = 3600 * 10**9
"""Distant deadline that is in the past on the clock of a machine that is up for longer."""


@check("NNHAL-01")
def expired_preparation(target: Target, recorder: CheckRecorder) -> None:
    """Check that a preparation with a deadline of 0 ns misses it and returns no model."""
    for options in both_preparations(deadline_ns=0):
        outcome = target.prepare(builtin_case("network").model(), options)
        missed = outcome.callback.is_missed_deadline and not outcome.model
        recorder.expect(missed, f"{options.call}, deadline 0", "MISSED_DEADLINE_* and no model", outcome.got)


@check("NNHAL-02")
def expired_execution(target: Target, recorder: CheckRecorder) -> None:
    """Check that an execution with a deadline of 0 ns misses it and writes nothing."""
    with prepared_model(target, "add_float") as model:
        for path, execute in reachable_calls(target).items():
            request = builtin_request("add_float")
            before = SENTINEL * request.pools[1].returned.size
            handle = target.memory_with(before)
            request.pools[1].pool.CopyFrom(mapped_pool(handle))
            answer = execute(target, model, request, RunOptions(deadline_ns=0)).outcome
            recorder.expect(answer.is_missed_deadline, f"{path}, deadline 0", "MISSED_DEADLINE_*", answer)
            same = target.read_memory(handle) == before
            recorder.expect(same, f"{path}, deadline 0: the outputs", "unchanged", "written")
            target.release(handle)


@check("NNHAL-42")
def deadline_from_the_call(target: Target, recorder: CheckRecorder) -> None:
    """Check that preparations and executions with a deadline of an hour from now meet it."""
    model = supported_model(target, builtin_case("add_float"))
    for options in both_preparations(deadline_ns=HOUR_NS):
        outcome = target.prepare(model, options)
        recorder.expect(bool(outcome.model), f"{options.call}, an hour", "NONE", outcome.callback)
        target.release(outcome.model)
    with prepared_model(target, "add_float") as prepared:
        for path, execute in reachable_calls(target).items():
            execution = execute(target, prepared, builtin_request("add_float"), RunOptions(deadline_ns=HOUR_NS))
            expect_correct(recorder, "add_float", execution, f"{path}, a deadline of an hour")
