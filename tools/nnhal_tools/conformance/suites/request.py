"""Suite `request` (VALREQ): requests without an argument fail on every path, and failing vectors fail."""

from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from functools import partial

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, Result, run_check
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.preparation_gate import query_and_prepare
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import CALLS, select_paths
from nnhal_tools.conformance.paths.path import check_steps
from nnhal_tools.conformance.registry import new_result, vector_check
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.prepared_case import PreparedCase
from nnhal_tools.conformance.vectors.requests import case_request

SUITE = "request"

REFUSALS = {
    "SYNC": "VALREQ-03",
    "FENCED": "VALREQ-04",
    "BURST": "VALREQ-05",
    "SYNC-R": "VALREQ-06",
    "FENCED-R": "VALREQ-06",
    "SYNC-C": "VALREQ-07",
    "FENCED-C": "VALREQ-08",
    "BURST-C": "VALREQ-09",
    "BURST-STREAM": "VALREQ-05",
    "BURST-C-STREAM": "VALREQ-09",
    "SYNC-D": "VALREQ-07",
    "BURST-D-STREAM": "VALREQ-09",
    "SYNC-LOCAL": "VALREQ-03",
    "BURST-LOCAL": "VALREQ-05",
}
"""Check id of each path. For a reusable execution, either createReusableExecution fails or both kinds of run do. Paths
over the data socket run if they are selected."""

_BURST_CREATED = "GEN-05"
"""Check of the step that must still succeed: creating a burst."""

NDK_ONLY = "V1_3_cts_only"
"""Folder of vectors that are not in the vendor test suite. The device may reject their models."""


@vector_check(SUITE, lambda case: not case.is_variant and not (case.expect_failure and case.spec.startswith(NDK_ONLY)))
def request(target: Target, case: Case) -> Iterator[Result]:
    """Yield one result for each path of a vector in VALMODEL, or one if it must fail, and not for the NDK only."""
    if case.expect_failure:
        yield run_check(
            new_result(case, SUITE, "SYNC"), "VALREQ-11", lambda recorder: _must_fail(target, case, recorder)
        )
        return
    with closing(PreparedCase(target, case)) as prepared_case:
        selected = select_paths(target.paths, built_in=case.is_built_in)
        for path, check in REFUSALS.items():
            if CALLS[path].over_data_socket and path not in selected:
                continue
            result = new_result(case, SUITE, path)
            yield run_check(result, check, partial(_missing_arguments, prepared_case, path))


def _missing_arguments(prepared_case: PreparedCase, path: str, recorder: CheckRecorder) -> None:
    target, model = prepared_case.target, prepared_case.model_handle(recorder)
    with case_request(target, prepared_case.case, padded=False) as request:
        for check, change, mutated in mutants(request):
            for measure in (False,) if CALLS[path].fenced else (False, True):
                execution = CALLS[path](target, model, mutated, RunOptions(measure))
                recorder.mark(check, REFUSALS[path])
                _expect_burst_created(recorder, execution, REFUSALS[path])
                if execution.outcome.status != ErrorStatus.INVALID_ARGUMENT or execution.launched:
                    got = f"{execution.outcome}{', in the callback' if execution.launched else ''}"
                    raise CheckFailed(check, f"{path} {change}", "INVALID_ARGUMENT", got, (REFUSALS[path],))


def _expect_burst_created(recorder: CheckRecorder, execution: ExecutionOutcome, check: str) -> None:
    creation = [step for step in execution.steps if step.check == _BURST_CREATED]
    check_steps(recorder, ExecutionOutcome(execution.outcome, steps=creation), check)


def mutants(request: types_pb2.Request) -> Iterator[tuple[str, str, types_pb2.Request]]:
    """Yield the requests of VALREQ-01 and -02: check id, missing argument and request."""
    for check, name in (("VALREQ-01", "inputs"), ("VALREQ-02", "outputs")):
        for i in range(len(getattr(request, name))):
            mutated = deepcopy(request)
            del getattr(mutated, name)[i]
            yield check, f"without {name[:-1]} {i}", mutated


def _must_fail(target: Target, case: Case, recorder: CheckRecorder) -> None:
    """Run VALREQ-10 and -11. An endless loop ends after the default timeout of 2 s."""
    model = target.upload_large_pools(case.model())
    preparation = query_and_prepare(target, model, recorder)
    recorder.mark("VALREQ-10")
    try:
        with case_request(target, case, padded=False) as request:
            execution = target.execute(preparation.model, request)
        failed = execution.outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)
        recorder.expect(failed, "an execution that must fail", "an error", execution.outcome, check="VALREQ-11")
    finally:
        target.release(preparation.model)
        target.release_pools(model.pools)
