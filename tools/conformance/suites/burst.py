"""The suite `burst` (BURST): what a burst refuses, for every vector."""

from collections.abc import Iterator

from nnhal.types import ErrorStatus
from tools.conformance.check import Judge, Result, judged
from tools.conformance.paths import burst as bursts
from tools.conformance.paths.staged import staged
from tools.conformance.registry import per_vector, result_of
from tools.conformance.request import requesting
from tools.conformance.subject import Subject
from tools.conformance.target import PLAIN, Answer, Target
from tools.conformance.vectors import Case

SUITE = "burst"

IMPOSSIBLE = -2
"""An identifier that none may have."""


def applies(case: Case) -> bool:
    """The vectors of VALREQ-01."""
    return not case.is_variant and not case.expect_failure


@per_vector(SUITE, applies)
def burst(target: Target, case: Case) -> Iterator[Result]:
    """One result for each vector, over single calls and over a stream."""
    yield judged(result_of(case, SUITE), "BURST-01", lambda judge: _burst(target, case, judge))


def _burst(target: Target, case: Case, judge: Judge) -> None:
    subject = Subject(target, case)
    try:
        with (
            requesting(target, case, padded=False) as whole,
            staged(target, whole) as made,
            bursts.bursting(target, subject.prepared(judge)) as (answer, handle),
        ):
            is_made = answer.status == ErrorStatus.NONE
            judge.expect("BURST-01", is_made, "configureExecutionBurst", "NONE and a burst", answer)
            for check, identifiers in _wrong(len(made.request.pools)):
                message = bursts.plain_message(target, handle, made.request, identifiers, PLAIN)
                _expect_refused(judge, check, f"identifiers {identifiers}", bursts.call(target, message).answer)
                _expect_refused(judge, check, f"a stream, identifiers {identifiers}", _streamed(target, message))
            release = bursts.release_message(target, handle, IMPOSSIBLE)
            refused = bursts.released(target, handle, IMPOSSIBLE)
            _expect_refused(judge, "BURST-05", f"releaseMemoryResource({IMPOSSIBLE})", refused)
            over_stream = _streamed(target, release)
            _expect_refused(judge, "BURST-05", f"a stream, releaseMemoryResource({IMPOSSIBLE})", over_stream)
    finally:
        subject.close()


def _wrong(pools: int) -> Iterator[tuple[str, list[int]]]:
    """Lists of identifiers that must be refused, each with its id."""
    for i in range(pools):
        yield "BURST-02", [IMPOSSIBLE if k == i else k for k in range(pools)]
    yield "BURST-03", [bursts.NOT_KEPT] * (pools - 1)
    yield "BURST-04", [bursts.NOT_KEPT] * (pools + 1)


def _streamed(target: Target, message: object) -> Answer:
    """How a call ends that is the only one on a stream."""
    answers = bursts.stream(target, [message])
    if isinstance(answers, Answer):
        return answers
    return bursts.outcome(target, answers[0]).answer if answers else Answer(ErrorStatus.GENERAL_FAILURE, "no answer")


def _expect_refused(judge: Judge, check: str, what: str, answer: Answer) -> None:
    judge.expect(check, answer.status == ErrorStatus.INVALID_ARGUMENT, what, "INVALID_ARGUMENT", answer)
