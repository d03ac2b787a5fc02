"""Executions: times, loop timeouts, concurrency (EXTRA-02, -03, -07, -22)."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import reachable_calls
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.requests import build_request
from nnhal_tools.conformance.vectors.samples import builtin_request, expect_correct, prepared_model

MAXIMUM_NS = 15_000_000_000
THREADS = 8


@check("EXTRA-02", "executions")
def times_of_executions(target: Target, recorder: CheckRecorder) -> None:
    """Check that every execution call rejects a deadline and a loop timeout of -2."""
    with prepared_model(target, "add_float") as model:
        for path, execute in reachable_calls(target).items():
            for name, run in (
                ("deadline", RunOptions(deadline_ns=-2)),
                ("loop timeout", RunOptions(loop_timeout_ns=-2)),
            ):
                answer = execute(target, model, builtin_request("add_float"), run).outcome
                recorder.expect_status(answer, f"{path} with a {name} of -2 ns", ErrorStatus.INVALID_ARGUMENT)


@check("EXTRA-03", "timeout of 0")
def loop_timeout_of_0(target: Target, recorder: CheckRecorder) -> None:
    """Check that a loop timeout of 0 is valid: loops time out or finish, and models without loops are unaffected."""
    for path, execute in reachable_calls(target).items():
        with prepared_model(target, "while_without_end") as model:
            answer = execute(target, model, builtin_request("while_without_end"), RunOptions(loop_timeout_ns=0)).outcome
            expected = "MISSED_DEADLINE_*"
            recorder.expect(answer.is_missed_deadline, f"{path}, an endless loop, 0 ns", expected, answer)
        with prepared_model(target, "while_5_turns") as model:
            execution = execute(target, model, builtin_request("while_5_turns"), RunOptions(loop_timeout_ns=0))
            if not execution.outcome.is_missed_deadline:
                expect_correct(recorder, "while_5_turns", execution, f"{path}, a loop of 5 turns, 0 ns")
        with prepared_model(target, "add_float") as model:
            execution = execute(target, model, builtin_request("add_float"), RunOptions(loop_timeout_ns=0))
            expect_correct(recorder, "add_float", execution, f"{path}, no loop, 0 ns")


@check("EXTRA-03", "timeout of 15 s and above")
def loop_timeout_of_15_s(target: Target, recorder: CheckRecorder) -> None:
    """Check that a loop timeout of 15 s, the maximum of the contract, is accepted, and a longer one is not."""
    with prepared_model(target, "while_5_turns") as model:
        for path, execute in reachable_calls(target).items():
            execution = execute(target, model, builtin_request("while_5_turns"), RunOptions(loop_timeout_ns=MAXIMUM_NS))
            expect_correct(recorder, "while_5_turns", execution, f"{path}, 15 s")
            answer = execute(
                target, model, builtin_request("while_5_turns"), RunOptions(loop_timeout_ns=MAXIMUM_NS + 1)
            ).outcome
            recorder.expect_status(answer, f"{path}, 15 s and 1 ns", ErrorStatus.INVALID_ARGUMENT)


@check("EXTRA-07", "parallel executions")
def parallel_executions(target: Target, recorder: CheckRecorder) -> None:
    """Check that each of several concurrent executions returns the outputs of its own inputs."""
    row = np.array([-2, 1, 0.5], np.float32)

    def work(seed: int) -> tuple[ExecutionOutcome, bool]:
        matrix = np.random.default_rng(seed).integers(-9, 9, (2, 3)).astype(np.float32)
        request = builtin_request("add_float")
        request.pools[0].pool.inline = build_request([matrix, row], [])[1]
        execution = target.execute(model, request)
        return execution, execution.output_bytes == [np.maximum(matrix + row, 0).tobytes()]

    with prepared_model(target, "add_float") as model, ThreadPoolExecutor(THREADS) as threads:
        for execution, right in threads.map(work, range(10 * THREADS)):
            got = execution.outcome if right or execution.outcome.status else "outputs of other inputs"
            recorder.expect(right, f"executions of one model on {THREADS} threads", "their own outputs", got)


@check("EXTRA-22", "executions")
def expired_execution(target: Target, recorder: CheckRecorder) -> None:
    """Check that a deadline that has passed is persistent, and a loop timeout transient.

    A retry cannot meet the deadline, but the loop may finish in time on another run.
    """
    with prepared_model(target, "add_float") as model:
        answer = target.execute(model, builtin_request("add_float"), RunOptions(deadline_ns=0)).outcome
        right = answer.status in (ErrorStatus.NONE, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
        recorder.expect(right, "SYNC, deadline 0", "MISSED_DEADLINE_PERSISTENT (or NONE)", answer)
    with prepared_model(target, "while_without_end") as model:
        run = RunOptions(loop_timeout_ns=1_000_000)
        answer = target.execute(model, builtin_request("while_without_end"), run).outcome
        recorder.expect_status(answer, "SYNC, an endless loop", ErrorStatus.MISSED_DEADLINE_TRANSIENT)
