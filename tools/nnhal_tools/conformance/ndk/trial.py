"""Executions of a vector through the NNAPI C library, with every way of computing and kind of arguments."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, Skipped, attribute_failures
from nnhal_tools.conformance.device.ndk_library import CallFailed, NdkLibrary
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.ndk.execution import ARGUMENTS, DEVICE_ARGUMENTS, WAYS, Way, execute
from nnhal_tools.conformance.ndk.model import LibraryModel
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.outcome_checks import (
    LOOP_TIMEOUT_NS,
    NO_DYNAMIC_SHAPE,
    OutcomeCheck,
    OutcomeChecks,
    must_be_refused,
)
from nnhal_tools.conformance.vectors.outputs import check_timing


class NdkTrial:
    """Executions of a case on the first device of the library.

    `on_device`: arguments are in memories of the device, which are never too small.
    """

    def __init__(self, library: NdkLibrary, case: Case, *, on_device: bool = False) -> None:
        self._library = library
        self._case = case
        self._on_device = on_device
        self._arguments = DEVICE_ARGUMENTS if on_device else ARGUMENTS
        self._checks = OutcomeChecks(case)
        self._sizes = [output.array.nbytes for output in case.outputs]

    def run(self, recorder: CheckRecorder) -> None:
        """Run all kinds of the case. Raise CheckFailed, or Skipped if the device does not support the model."""
        if self._case.expect_failure and not self._case.is_endless_loop:
            self._run_failing(recorder)
            return
        with self._compiled(recorder, unspecified=False) as (_, compilation):
            if self._case.is_endless_loop:
                options = RunOptions(loop_timeout_ns=LOOP_TIMEOUT_NS)
                self._run_ways(recorder, compilation, self._checks.endless_loop, options)
                return
            for measure in (False, True):
                self._run_fully_specified(recorder, compilation, RunOptions(measure, chain=True))
        if not NO_DYNAMIC_SHAPE & set(self._case.operations):
            with self._compiled(recorder, unspecified=True) as (_, compilation):
                self._run_dynamic_shape(recorder, compilation)

    @contextmanager
    def _compiled(self, recorder: CheckRecorder, *, unspecified: bool) -> Iterator[tuple[LibraryModel, int]]:
        """Yield the model and its compilation. A call that fails meanwhile fails GEN-01."""
        try:
            with LibraryModel(self._library, self._case.model(unspecified_outputs=unspecified)) as model:
                if not all(model.supported):
                    count = model.supported.count(False)
                    raise Skipped("X1", f"{count} of {len(model.supported)} operations are not supported")
                compilation = model.compile()
                recorder.mark("GEN-01")
                yield model, compilation
        except CallFailed as failed:
            raise CheckFailed("GEN-01", "a model of the C library", "NO_ERROR", failed) from None

    def _run_fully_specified(self, recorder: CheckRecorder, compilation: int, options: RunOptions) -> None:
        has_empty_output = 0 in self._sizes
        refused = must_be_refused("GEN-16", "a zero-sized output")
        self._run_ways(
            recorder, compilation, self._checks.fully_specified, options, refused if has_empty_output else None
        )

    def _run_dynamic_shape(self, recorder: CheckRecorder, compilation: int) -> None:
        options = RunOptions(chain=True)
        refused = must_be_refused("GEN-22", "outputs of unspecified dimensions")
        self._run_ways(recorder, compilation, self._checks.unspecified, options, refused)
        if self._sizes[0] > 1 and not self._on_device:
            self._sizes[0] -= 1
            refused = must_be_refused("GEN-27", "output 0 one byte too small")
            self._run_ways(recorder, compilation, self._checks.insufficient, options, refused)
            self._sizes[0] += 1

    def _run_ways(
        self,
        recorder: CheckRecorder,
        compilation: int,
        check: OutcomeCheck,
        options: RunOptions,
        fenced_check: OutcomeCheck | None = None,
    ) -> None:
        """Run each way with each kind of arguments. `fenced_check`: replaces the check for fenced executions."""
        for kind in self._arguments:
            for name, way in WAYS.items():
                with attribute_failures(note=f" ({name} with arguments in {kind})"):
                    execution = self._execute(compilation, way, kind, options)
                    recorder.mark(way.check)
                    check_timing(recorder, execution, options.measure)
                    (fenced_check if fenced_check is not None and way.fenced else check)(recorder, execution)

    def _execute(self, compilation: int, way: Way, kind: str, options: RunOptions) -> ExecutionOutcome:
        with closing(self._arguments[kind](self._library, compilation, self._case.inputs, self._sizes)) as arguments:
            return execute(self._library, compilation, way, arguments, len(self._sizes), options)

    def _run_failing(self, recorder: CheckRecorder) -> None:
        """Check that the model cannot be built, compiled or executed."""
        recorder.mark("VALREQ-11")
        try:
            with LibraryModel(self._library, self._case.model()) as model:
                kind = next(iter(self._arguments))
                execution = self._execute(model.compile(), WAYS["compute"], kind, RunOptions())
        except CallFailed:
            return
        failed = execution.outcome.status != ErrorStatus.NONE
        recorder.expect(failed, "an execution that must fail", "an error", execution.outcome, check="VALREQ-11")
