"""Executions: times, loop timeouts, many at once (EXTRA-02, -03, -07, -22)."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nnhal.types import ErrorStatus
from tools.conformance.check import Judge
from tools.conformance.paths import calls
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, prepared, request_of
from tools.conformance.target import Executed, Run, Target

MAXIMUM_NS = 15_000_000_000
THREADS = 8


@check("EXTRA-02", "of executions")
def times_of_executions(target: Target, judge: Judge) -> None:
    """Deadline and loop timeout of -2, by every call."""
    with prepared(target, "add_float") as model:
        for path, execute in calls(target).items():
            for name, run in (("deadline", Run(deadline_ns=-2)), ("loop timeout", Run(loop_timeout_ns=-2))):
                answer = execute(target, model, request_of("add_float"), run).answer
                refused = answer.status == ErrorStatus.INVALID_ARGUMENT
                judge.expect("EXTRA-02", refused, f"{path} with a {name} of -2 ns", "INVALID_ARGUMENT", answer)


@check("EXTRA-03", "of 0")
def loop_timeout_of_0(target: Target, judge: Judge) -> None:
    """Legal: loops are ended, or finish; models without loops do not mind."""
    for path, execute in calls(target).items():
        with prepared(target, "while_without_end") as model:
            answer = execute(target, model, request_of("while_without_end"), Run(loop_timeout_ns=0)).answer
            expected = "MISSED_DEADLINE_*"
            judge.expect("EXTRA-03", answer.is_missed_deadline, f"{path}, an endless loop, 0 ns", expected, answer)
        with prepared(target, "while_5_turns") as model:
            executed = execute(target, model, request_of("while_5_turns"), Run(loop_timeout_ns=0))
            if not executed.answer.is_missed_deadline:
                expect_right(judge, "EXTRA-03", "while_5_turns", executed, f"{path}, a loop of 5 turns, 0 ns")
        with prepared(target, "add_float") as model:
            executed = execute(target, model, request_of("add_float"), Run(loop_timeout_ns=0))
            expect_right(judge, "EXTRA-03", "add_float", executed, f"{path}, no loop, 0 ns")


@check("EXTRA-03", "of 15 s and above")
def loop_timeout_of_15_s(target: Target, judge: Judge) -> None:
    """15 s is the most that the contract allows."""
    with prepared(target, "while_5_turns") as model:
        for path, execute in calls(target).items():
            executed = execute(target, model, request_of("while_5_turns"), Run(loop_timeout_ns=MAXIMUM_NS))
            expect_right(judge, "EXTRA-03", "while_5_turns", executed, f"{path}, 15 s")
            answer = execute(target, model, request_of("while_5_turns"), Run(loop_timeout_ns=MAXIMUM_NS + 1)).answer
            refused = answer.status == ErrorStatus.INVALID_ARGUMENT
            judge.expect("EXTRA-03", refused, f"{path}, 15 s and 1 ns", "INVALID_ARGUMENT", answer)


@check("EXTRA-07", "parallel executions")
def parallel_executions(target: Target, judge: Judge) -> None:
    """Each thread has inputs of its own, and gets the outputs that belong to them."""
    row = np.array([-2, 1, 0.5], np.float32)

    def work(seed: int) -> tuple[Executed, bool]:
        matrix = np.random.default_rng(seed).integers(-9, 9, (2, 3)).astype(np.float32)
        request = request_of("add_float")
        request.pools[0].pool.inline = _pool(matrix, row)
        executed = target.execute(model, request)
        expected = np.maximum(matrix + row, 0).tobytes()
        got = executed.outputs[0] if executed.outputs else None
        return executed, got is not None and got.tobytes() == expected

    with prepared(target, "add_float") as model, ThreadPoolExecutor(THREADS) as threads:
        for executed, right in threads.map(work, range(10 * THREADS)):
            got = executed.answer if right or executed.answer.status else "outputs of other inputs"
            judge.expect("EXTRA-07", right, f"executions of one model on {THREADS} threads", "their own outputs", got)


def _pool(*arrays: "np.typing.NDArray[np.float32]") -> bytes:
    """Inputs at multiples of 64 bytes."""
    return b"".join(array.tobytes() + bytes(-array.nbytes % 64) for array in arrays)


@check("EXTRA-22", "of executions")
def late_execution(target: Target, judge: Judge) -> None:
    """No retry can meet a deadline that has passed; a loop that takes too long may do better next time."""
    with prepared(target, "add_float") as model:
        answer = target.execute(model, request_of("add_float"), Run(deadline_ns=0)).answer
        right = answer.status in (ErrorStatus.NONE, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
        judge.expect("EXTRA-22", right, "SYNC, deadline 0", "MISSED_DEADLINE_PERSISTENT (or NONE)", answer)
    with prepared(target, "while_without_end") as model:
        run = Run(loop_timeout_ns=1_000_000)
        answer = target.execute(model, request_of("while_without_end"), run).answer
        transient = answer.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
        judge.expect("EXTRA-22", transient, "SYNC, an endless loop", "MISSED_DEADLINE_TRANSIENT", answer)
