"""The suite `request` (VALREQ): requests that lack an argument are refused on every path; vectors that must fail do."""

from collections.abc import Iterator

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import CheckFailed, Judge, Result, judged
from tools.conformance.gate import prepared_model
from tools.conformance.paths import CALLS, chosen, judge_steps
from tools.conformance.registry import per_vector, result_of
from tools.conformance.request import requesting
from tools.conformance.subject import Subject
from tools.conformance.target import Executed, Run, Target
from tools.conformance.vectors import Case

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
    "SYNC-LOCAL": "VALREQ-03",
    "BURST-LOCAL": "VALREQ-05",
}
"""The id of each path. Reusable: createReusableExecution refuses, or else both ways to run it do. Those over the data
socket run where they are chosen."""

_MUST_HOLD = "GEN-05"
"""The step that must hold all the same: making a burst."""

NDK_ONLY = "V1_3_cts_only"
"""The folder of vectors that the vendor test suite does not have: their models may be refused."""


def applies(case: Case) -> bool:
    """The vectors of VALMODEL, less those that must fail and are for the NDK alone."""
    return not case.is_variant and not (case.expect_failure and case.spec.startswith(NDK_ONLY))


@per_vector(SUITE, applies)
def request(target: Target, case: Case) -> Iterator[Result]:
    """One result for each path; one for a vector that must fail."""
    if case.expect_failure:
        yield judged(result_of(case, SUITE, "SYNC"), "VALREQ-11", lambda judge: _must_fail(target, case, judge))
        return
    subject = Subject(target, case)
    try:
        local = chosen(target.paths, built_in=case.is_built_in)
        for path, check in REFUSALS.items():
            if CALLS[path].local and path not in local:
                continue
            result = result_of(case, SUITE, path)
            yield judged(result, check, lambda judge, path=path: _lacking(subject, path, judge))  # type: ignore[misc]
    finally:
        subject.close()


def _lacking(subject: Subject, path: str, judge: Judge) -> None:
    target, model = subject.target, subject.prepared(judge)
    with requesting(target, subject.case, padded=False) as whole:
        for check, place, mutated in mutants(whole):
            for measure in (False,) if CALLS[path].fenced else (False, True):
                executed = CALLS[path](target, model, mutated, Run(measure))
                judge.checks[check] = judge.checks[REFUSALS[path]] = None
                _expect_burst(judge, executed, REFUSALS[path])
                if executed.answer.status != ErrorStatus.INVALID_ARGUMENT or executed.launched:
                    got = f"{executed.answer}{', in the callback' if executed.launched else ''}"
                    raise CheckFailed(check, f"{path} {place}", "INVALID_ARGUMENT", got, (REFUSALS[path],))


def _expect_burst(judge: Judge, executed: Executed, check: str) -> None:
    made = [done for done in executed.steps if done.check == _MUST_HOLD]
    judge_steps(judge, Executed(executed.answer, steps=made), check)


def mutants(whole: types_pb2.Request) -> Iterator[tuple[str, str, types_pb2.Request]]:
    """VALREQ-01 and -02: id, what is missing, and the request without it."""
    for check, name in (("VALREQ-01", "inputs"), ("VALREQ-02", "outputs")):
        for i in range(len(getattr(whole, name))):
            mutated = types_pb2.Request()
            mutated.CopyFrom(whole)
            del getattr(mutated, name)[i]
            yield check, f"without {name[:-1]} {i}", mutated


def _must_fail(target: Target, case: Case, judge: Judge) -> None:
    """VALREQ-10 and -11. An endless loop ends by the default timeout of 2 s."""
    model = target.own_pools(case.model())
    prepared = prepared_model(target, model, judge)
    judge.checks["VALREQ-10"] = None
    try:
        with requesting(target, case, padded=False) as whole:
            executed = target.execute(prepared.model, whole)
        failed = executed.answer.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)
        judge.expect("VALREQ-11", failed, "an execution that must fail", "an error", executed.answer)
    finally:
        target.release(prepared.model)
        target.release_pools(model.pools)
