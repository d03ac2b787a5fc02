"""The suite `qos` (QOS): priorities and deadlines of preparations and executions, for every vector."""

from collections.abc import Iterator

from nnhal.types import ErrorStatus
from tools.conformance.check import Judge, Result, Skipped, judged
from tools.conformance.outputs import check_outputs, check_shapes, check_timing
from tools.conformance.paths import CALLS, judge_steps
from tools.conformance.registry import per_vector, result_of
from tools.conformance.request import requesting
from tools.conformance.target import Answer, Executed, Prepared, Preparing, Run, Target
from tools.conformance.vectors import Case

SUITE = "qos"

LOW, MEDIUM, HIGH = 0, 1, 2

NOW_NS = 0
SHORT_NS = 5_000_000
UNLIMITED_NS = 2**63 - 1
"""Deadlines of the contract count from now."""

PREPARATIONS = {
    "QOS-04": Preparing(priority=LOW),
    "QOS-05": Preparing(priority=HIGH),
    "QOS-06": Preparing(deadline_ns=NOW_NS),
    "QOS-08": Preparing(deadline_ns=SHORT_NS),
    "QOS-07": Preparing(deadline_ns=UNLIMITED_NS),
}
"""The last one must succeed, and its model is executed."""

EXECUTIONS = {
    "SYNC": {"QOS-12": NOW_NS, "QOS-14": SHORT_NS, "QOS-13": UNLIMITED_NS},
    "BURST": {"QOS-15": NOW_NS, "QOS-17": SHORT_NS, "QOS-16": UNLIMITED_NS},
}

MAY_MISS = ("QOS-06", "QOS-08", "QOS-12", "QOS-14", "QOS-15", "QOS-17")
"""X12: NONE and MISSED_DEADLINE_* are both right."""


def applies(case: Case) -> bool:
    """Vectors that must succeed."""
    return not case.expect_failure


@per_vector(SUITE, applies)
def qos(target: Target, case: Case) -> Iterator[Result]:
    """One result for each vector."""
    yield judged(result_of(case, SUITE), "QOS-10", lambda judge: _qos(target, case, judge))


def _qos(target: Target, case: Case, judge: Judge) -> None:
    model = target.own_pools(case.model())
    answer, supported = target.supported_operations(model)
    whole = answer.status == ErrorStatus.NONE and bool(supported)
    judge.expect("QOS-01", whole, "getSupportedOperations", "NONE and a list", answer)
    handles = []
    try:
        for check, how in PREPARATIONS.items():
            prepared = target.prepare(model, how)
            handles.append(prepared.model)
            _judge_preparation(judge, prepared, check, all(supported))
        _executions(target, case, judge, handles[-1])
    finally:
        target.release(*filter(None, handles))
        target.release_pools(model.pools)


def _judge_preparation(judge: Judge, prepared: Prepared, check: str, supported: bool) -> None:
    what = f"prepareModel, {_described(check)}"
    judge.expect("QOS-02", prepared.launch.status == ErrorStatus.NONE, what, "a launch that is OK", prepared.launch)
    callback = prepared.callback
    is_none = callback.status == ErrorStatus.NONE
    if not is_none:
        judge.expect("QOS-03", not prepared.model, what, "no model with an error", callback)
    judge.expect("QOS-09", is_none == bool(prepared.model), what, "a model exactly with NONE", callback)
    if not is_none and not supported:
        raise Skipped("X1", f"not fully supported: {callback}")
    _judge_status(judge, check, what, prepared.callback)


def _executions(target: Target, case: Case, judge: Judge, model: bytes) -> None:
    with requesting(target, case, padded=False) as request:
        for path, deadlines in EXECUTIONS.items():
            for check, deadline_ns in deadlines.items():
                executed = CALLS[path](target, model, request, Run(deadline_ns=deadline_ns))
                judge.checks["QOS-10"] = None
                judge_steps(judge, executed, "QOS-10")
                check_timing(judge, executed, measure=False, unmeasured="QOS-11")
                _judge_status(judge, check, f"{path}, deadline {deadline_ns} ns", executed.answer)
                if executed.answer.status == ErrorStatus.NONE:
                    _judge_outputs(judge, case, executed)


def _judge_status(judge: Judge, check: str, what: str, answer: Answer) -> None:
    if check in MAY_MISS:
        right = answer.status == ErrorStatus.NONE or answer.is_missed_deadline
        judge.expect(check, right, what, "NONE or MISSED_DEADLINE_*", answer)
    else:
        judge.expect(check, answer.status == ErrorStatus.NONE, what, "NONE", answer)


def _judge_outputs(judge: Judge, case: Case, executed: Executed) -> None:
    count = len(executed.shapes)
    judge.expect("QOS-18", count in (0, len(case.outputs)), "outputs", "no shapes or one per output", count)
    check_shapes(judge, case, executed, "QOS-18")
    check_outputs(judge, case, executed, "QOS-19")


def _described(check: str) -> str:
    how = PREPARATIONS[check]
    return f"priority {how.priority}" if how.deadline_ns is None else f"deadline {how.deadline_ns} ns"
