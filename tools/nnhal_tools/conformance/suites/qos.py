"""Suite `qos` (QOS): priorities and deadlines of preparations and executions, for every vector."""

from collections.abc import Iterator

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.check import CheckRecorder, Result, Skipped, run_check
from nnhal_tools.conformance.device.options import PreparationOptions, RunOptions
from nnhal_tools.conformance.device.results import AGREEMENT, CallOutcome, ExecutionOutcome, PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import CALLS
from nnhal_tools.conformance.paths.path import check_steps
from nnhal_tools.conformance.registry import new_result, vector_check
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.outputs import check_outputs, check_shapes, check_timing
from nnhal_tools.conformance.vectors.requests import case_request

SUITE = "qos"

LOW, MEDIUM, HIGH = 0, 1, 2

NOW_NS = 0
SHORT_NS = 5_000_000
UNLIMITED_NS = 2**63 - 1
"""Deadlines, which the contract counts from the call."""

PREPARATIONS = {
    "QOS-04": PreparationOptions(priority=LOW),
    "QOS-05": PreparationOptions(priority=HIGH),
    "QOS-06": PreparationOptions(deadline_ns=NOW_NS),
    "QOS-08": PreparationOptions(deadline_ns=SHORT_NS),
    "QOS-07": PreparationOptions(deadline_ns=UNLIMITED_NS),
}
"""Options of the preparations. The last one must succeed, because its model is executed."""

EXECUTIONS = {
    "SYNC": {"QOS-12": NOW_NS, "QOS-14": SHORT_NS, "QOS-13": UNLIMITED_NS},
    "BURST": {"QOS-15": NOW_NS, "QOS-17": SHORT_NS, "QOS-16": UNLIMITED_NS},
}

MAY_MISS = ("QOS-06", "QOS-08", "QOS-12", "QOS-14", "QOS-15", "QOS-17")
"""Checks with allowance X12: NONE and MISSED_DEADLINE_* are both valid."""


@vector_check(SUITE, lambda case: not case.expect_failure)
def qos(target: Target, case: Case) -> Iterator[Result]:
    """Yield one result for each vector that must succeed."""
    yield run_check(new_result(case, SUITE), "QOS-10", lambda recorder: _qos(target, case, recorder))


def _qos(target: Target, case: Case, recorder: CheckRecorder) -> None:
    model = target.upload_large_pools(case.model())
    outcome, supported = target.supported_operations(model)
    complete = outcome.status == ErrorStatus.NONE and bool(supported)
    recorder.expect(complete, "getSupportedOperations", "NONE and a list", outcome, check="QOS-01")
    handles = []
    try:
        for check, options in PREPARATIONS.items():
            preparation = target.prepare(model, options)
            handles.append(preparation.model)
            _check_preparation(recorder, preparation, check, all(supported))
        _check_executions(target, case, recorder, handles[-1])
    finally:
        target.release(*filter(None, handles))
        target.release_pools(model.pools)


def _check_preparation(recorder: CheckRecorder, preparation: PreparationOutcome, check: str, supported: bool) -> None:
    stimulus = f"prepareModel, {_description(check)}"
    launch, callback = preparation.launch, preparation.callback
    recorder.expect(launch.status == ErrorStatus.NONE, stimulus, "NONE at launch", launch, check="QOS-02")
    is_none = callback.status == ErrorStatus.NONE
    if not is_none:
        recorder.expect(not preparation.model, stimulus, "no model with an error", callback, check="QOS-03")
    recorder.expect(preparation.agrees, stimulus, AGREEMENT, callback, check="QOS-09")
    if not is_none and not supported:
        raise Skipped("X1", f"not fully supported: {callback}")
    _check_status(recorder, check, stimulus, preparation.callback)


def _check_executions(target: Target, case: Case, recorder: CheckRecorder, model: bytes) -> None:
    with case_request(target, case, padded=False) as request:
        for path, deadlines in EXECUTIONS.items():
            for check, deadline_ns in deadlines.items():
                execution = CALLS[path](target, model, request, RunOptions(deadline_ns=deadline_ns))
                recorder.mark("QOS-10")
                check_steps(recorder, execution, "QOS-10")
                check_timing(recorder, execution, measure=False, unmeasured="QOS-11")
                _check_status(recorder, check, f"{path}, deadline {deadline_ns} ns", execution.outcome)
                if execution.outcome.status == ErrorStatus.NONE:
                    _check_execution_outputs(recorder, case, execution)


def _check_status(recorder: CheckRecorder, check: str, stimulus: str, outcome: CallOutcome) -> None:
    if check in MAY_MISS:
        valid = outcome.status == ErrorStatus.NONE or outcome.is_missed_deadline
        recorder.expect(valid, stimulus, "NONE or MISSED_DEADLINE_*", outcome, check=check)
    else:
        recorder.expect_status(outcome, stimulus, check=check)


def _check_execution_outputs(recorder: CheckRecorder, case: Case, execution: ExecutionOutcome) -> None:
    count = len(execution.shapes)
    recorder.expect(count in (0, len(case.outputs)), "outputs", "no shapes or one per output", count, check="QOS-18")
    check_shapes(recorder, case, execution, "QOS-18")
    check_outputs(recorder, case, execution, "QOS-19")


def _description(check: str) -> str:
    options = PREPARATIONS[check]
    return f"priority {options.priority}" if options.deadline_ns is None else f"deadline {options.deadline_ns} ns"
