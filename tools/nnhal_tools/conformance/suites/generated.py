"""Suite `generated` (GEN): every vector is prepared and executed as the checklist requires.

On each path, and on the models of both preparation calls, a case runs with fully specified outputs. Unless it has a
RANK, IF or WHILE, it also runs with outputs of unspecified dimensions and with output 0 one byte too small. Each kind
runs with and without timing. Fenced executions must reject outputs that are unspecified or too small. With arguments
in buffers, only fully specified outputs run, without timing. An endless loop must time out. A quant8 model of one
operation also runs as its signed variant.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing, nullcontext

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder, Result, Skipped, attribute_failures, run_check
from nnhal_tools.conformance.device.options import PreparationOptions, RunOptions, both_preparations
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.ndk.trial import NdkTrial
from nnhal_tools.conformance.paths import NDK_BUFFER, NDK_PATHS, PATHS, select_paths
from nnhal_tools.conformance.paths.path import ExecutionPath, check_steps
from nnhal_tools.conformance.registry import new_result, vector_check
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.outcome_checks import (
    LOOP_TIMEOUT_NS,
    NO_DYNAMIC_SHAPE,
    OutcomeCheck,
    OutcomeChecks,
    must_be_refused,
)
from nnhal_tools.conformance.vectors.outputs import check_timing
from nnhal_tools.conformance.vectors.prepared_case import PreparedCase
from nnhal_tools.conformance.vectors.requests import case_request, with_small_output
from nnhal_tools.conformance.vectors.signed_variant import signed_variant

SUITE = "generated"


@vector_check(SUITE)
def generated(target: Target, case: Case) -> Iterator[Result]:
    """Yield one result for each path, and one for the signed variant. The path NDK runs both."""
    variant = signed_variant(case)
    if target.ndk is not None:
        for each, code in itertools.product(filter(None, (case, variant)), NDK_PATHS):
            if code in target.paths:
                ndk_trial = NdkTrial(target.ndk, each, on_device=code == NDK_BUFFER)
                yield run_check(new_result(each, SUITE, code), "GEN-04", ndk_trial.run)
    if target.paths and set(target.paths) <= set(NDK_PATHS):
        return
    if case.expect_failure and not case.is_endless_loop:
        yield run_check(
            new_result(case, SUITE, "SYNC"), "VALREQ-11", lambda recorder: _must_fail(target, case, recorder)
        )
        return
    with closing(VectorTrial(target, case)) as trial:
        for code, path in select_paths(target.paths, built_in=case.is_built_in).items():
            if path.buffers and case.expect_failure:
                continue
            result = new_result(case, SUITE, code)
            yield run_check(result, path.check, lambda recorder, path=path: trial.run(path, recorder))  # type: ignore[misc]
            trial.set_backends(result)
        if variant is not None:
            yield run_check(
                new_result(variant, SUITE, "SYNC"),
                "GEN-35",
                lambda recorder: _check_signed_variant(trial, variant, recorder),
            )


class VectorTrial(PreparedCase):
    """Executions of a case on one device, in all kinds."""

    def __init__(self, target: Target, case: Case) -> None:
        super().__init__(target, case)
        self._checks = OutcomeChecks(case)

    def run(self, path: ExecutionPath, recorder: CheckRecorder) -> None:
        """Run all kinds of the case on a path, on models of both preparation calls."""
        with case_request(self.target, self.case) as request:
            for options in both_preparations():
                note = f" ({options.call})"
                with attribute_failures("GEN-02", note=note) if options.with_config else nullcontext():
                    self._run_on_model_of(options, path, recorder, request)

    def _run_on_model_of(
        self, options: PreparationOptions, path: ExecutionPath, recorder: CheckRecorder, request: types_pb2.Request
    ) -> None:
        model = self.model_handle(recorder, options)
        if self.case.is_endless_loop:
            self._run_with_and_without_timing(
                path, recorder, model, request, self._checks.endless_loop, LOOP_TIMEOUT_NS
            )
            return
        self.run_fully_specified(path, recorder, model, request)
        if not path.buffers and not NO_DYNAMIC_SHAPE & set(self.case.operations):
            self._run_dynamic_shape(path, recorder, self.model_handle(recorder, options, unspecified=True), request)

    def run_fully_specified(
        self, path: ExecutionPath, recorder: CheckRecorder, model: bytes, request: types_pb2.Request
    ) -> None:
        """Run the kinds GENERAL, FENCED_COMPUTE and MEMORY_DOMAIN."""
        must_refuse = path.fenced and any(output.array.size == 0 for output in self.case.outputs)  # X9
        check_outcome = (
            must_be_refused("GEN-16", "a zero-sized output") if must_refuse else self._checks.fully_specified
        )
        self._run_with_and_without_timing(path, recorder, model, request, check_outcome)
        if path.buffers:
            recorder.mark("GEN-31")

    def _run_dynamic_shape(
        self, path: ExecutionPath, recorder: CheckRecorder, model: bytes, request: types_pb2.Request
    ) -> None:
        unspecified: OutcomeCheck = self._checks.unspecified
        insufficient: OutcomeCheck = self._checks.insufficient
        if path.fenced:
            unspecified = must_be_refused("GEN-22", "outputs of unspecified dimensions")
            insufficient = must_be_refused("GEN-27", "output 0 one byte too small")
        self._run_with_and_without_timing(path, recorder, model, request, unspecified)
        if self.case.outputs[0].array.nbytes > 1:  # X8
            self._run_with_and_without_timing(path, recorder, model, with_small_output(request), insufficient)

    def _run_with_and_without_timing(
        self,
        path: ExecutionPath,
        recorder: CheckRecorder,
        model: bytes,
        request: types_pb2.Request,
        check_outcome: OutcomeCheck,
        loop_timeout_ns: int | None = None,
    ) -> None:
        for measure in (False,) if path.buffers else (False, True):
            # An execution that waits for a loop that times out would fail with it.
            options = RunOptions(
                measure, loop_timeout_ns=loop_timeout_ns, cache_memory=True, chain=loop_timeout_ns is None
            )
            execution = path(self.target, model, request, options)
            recorder.mark(path.check)
            if execution.first_run is not None:
                _check_execution(recorder, execution.first_run, measure, check_outcome)
            is_second = execution.first_run is not None
            with attribute_failures("GEN-19", note=" (second run)") if is_second else nullcontext():
                _check_execution(recorder, execution, measure, check_outcome)
            if is_second:
                recorder.mark("GEN-19")


def _check_execution(
    recorder: CheckRecorder, execution: ExecutionOutcome, measure: bool, check_outcome: OutcomeCheck
) -> None:
    check_steps(recorder, execution)
    check_timing(recorder, execution, measure)
    check_outcome(recorder, execution)


def _check_signed_variant(original: VectorTrial, variant: Case, recorder: CheckRecorder) -> None:
    """Run GEN-34 and GEN-35. The original has just run alone, with the same configurations."""
    target = original.target
    with closing(VectorTrial(target, variant)) as trial, attribute_failures("GEN-35"):
        skipped = [_is_skipped(candidate, recorder) for candidate in (original, trial)]
        agree = skipped[0] == skipped[1]
        recorder.expect(
            agree, "a quant8 model and its signed variant", "both supported or both not", skipped, check="GEN-34"
        )
        if all(skipped):
            raise Skipped("X1", "neither the model nor its signed variant is fully supported")
        with case_request(target, variant) as request:
            trial.run_fully_specified(PATHS["SYNC"], recorder, trial.model_handle(recorder), request)
        recorder.mark("GEN-35")


def _is_skipped(trial: VectorTrial, recorder: CheckRecorder) -> bool:
    try:
        trial.model_handle(recorder)
    except Skipped:
        return True
    return False


def _must_fail(target: Target, case: Case, recorder: CheckRecorder) -> None:
    """Check that building, preparing or executing fails. As in the NDK tests, the driver may accept the model."""
    model = target.upload_large_pools(case.model())
    preparation = target.prepare(model)
    if not preparation.model:
        recorder.mark("VALREQ-11")
        return
    with case_request(target, case) as request:
        execution = target.execute(preparation.model, request)
    target.release(preparation.model)
    failed = execution.outcome.status != ErrorStatus.NONE
    recorder.expect(failed, "an execution that must fail", "an error", execution.outcome, check="VALREQ-11")
