"""Suite `burst` (BURST): invalid calls of a burst, for every vector."""

from collections.abc import Iterator
from contextlib import closing

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.check import CheckRecorder, Result, run_check
from nnhal_tools.conformance.device.options import DEFAULT_RUN
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import burst as bursts
from nnhal_tools.conformance.paths.staged import staged_request
from nnhal_tools.conformance.registry import new_result, vector_check
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.prepared_case import PreparedCase
from nnhal_tools.conformance.vectors.requests import case_request

SUITE = "burst"

INVALID = ErrorStatus.INVALID_ARGUMENT

INVALID_IDENTIFIER = -2
"""Invalid memory identifier."""


@vector_check(SUITE, lambda case: not case.is_variant and not case.expect_failure)
def burst(target: Target, case: Case) -> Iterator[Result]:
    """Yield one result for each vector to which VALREQ-01 applies, for single calls and for a stream."""
    yield run_check(new_result(case, SUITE), "BURST-01", lambda recorder: _burst(target, case, recorder))


def _burst(target: Target, case: Case, recorder: CheckRecorder) -> None:
    with (
        closing(PreparedCase(target, case)) as prepared_case,
        case_request(target, case, padded=False) as request,
        staged_request(target, request) as staged,
        bursts.open_burst(target, prepared_case.model_handle(recorder)) as (answer, handle),
    ):
        created = answer.status == ErrorStatus.NONE
        recorder.expect(created, "configureExecutionBurst", "NONE and a burst", answer, check="BURST-01")
        for check, identifiers in _invalid_identifiers(len(staged.request.pools)):
            message = bursts.execute_message(target, handle, staged.request, identifiers, DEFAULT_RUN)
            for call, execute in (("", bursts.execute_burst), ("a stream, ", bursts.call_on_stream)):
                answer = execute(target, message).outcome
                recorder.expect_status(answer, f"{call}identifiers {identifiers}", INVALID, check=check)
        answer = bursts.release_memory(target, handle, INVALID_IDENTIFIER)
        stimulus = f"releaseMemoryResource({INVALID_IDENTIFIER})"
        recorder.expect_status(answer, stimulus, INVALID, check="BURST-05")
        answer = bursts.call_on_stream(target, bursts.release_message(target, handle, INVALID_IDENTIFIER)).outcome
        recorder.expect_status(answer, f"a stream, {stimulus}", INVALID, check="BURST-05")


def _invalid_identifiers(pools: int) -> Iterator[tuple[str, list[int]]]:
    """Yield invalid lists of identifiers, each with its check id."""
    for i in range(pools):
        yield "BURST-02", [INVALID_IDENTIFIER if k == i else k for k in range(pools)]
    yield "BURST-03", [bursts.NO_IDENTIFIER] * (pools - 1)
    yield "BURST-04", [bursts.NO_IDENTIFIER] * (pools + 1)
