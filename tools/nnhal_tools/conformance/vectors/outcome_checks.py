"""Checks of an execution's outcome against its vector, for each kind of outputs (GEN-14 to GEN-27, and GEN-33)."""

from collections.abc import Callable

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.check import CheckRecorder, Skipped
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.outputs import check_outputs, check_shapes

OutcomeCheck = Callable[[CheckRecorder, ExecutionOutcome], None]
"""Function that checks the outcome of an execution."""

LOOP_TIMEOUT_NS = 1_000_000
"""Loop timeout of an endless loop."""

NO_DYNAMIC_SHAPE = frozenset({"RANK", "IF", "WHILE"})
"""Operations whose vectors run with fully specified outputs only."""


class OutcomeChecks:
    """Checks of the outcomes of a case. They raise CheckFailed, or Skipped for X2."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def fully_specified(self, recorder: CheckRecorder, execution: ExecutionOutcome) -> None:
        """Check an execution with fully specified outputs."""
        stimulus = "outputs fully specified"
        recorder.expect_status(execution.outcome, stimulus, check="GEN-14")
        count = len(execution.shapes)
        recorder.expect(
            count in (0, len(self.case.outputs)), stimulus, "no shapes or one per output", count, check="GEN-15"
        )
        check_shapes(recorder, self.case, execution)
        check_outputs(recorder, self.case, execution)

    def unspecified(self, recorder: CheckRecorder, execution: ExecutionOutcome) -> None:
        """Check an execution whose outputs have unspecified dimensions."""
        stimulus = "outputs of unspecified dimensions"
        _allow_general_failure(execution)
        recorder.expect_status(execution.outcome, stimulus, check="GEN-20")
        count = len(execution.shapes)
        recorder.expect(count == len(self.case.outputs), stimulus, "one shape per output", count, check="GEN-21")
        check_shapes(recorder, self.case, execution)
        check_outputs(recorder, self.case, execution)

    def insufficient(self, recorder: CheckRecorder, execution: ExecutionOutcome) -> None:
        """Check an execution whose output 0 is one byte too small."""
        stimulus = "output 0 one byte too small"
        _allow_general_failure(execution)
        recorder.expect_status(execution.outcome, stimulus, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, check="GEN-23")
        count = len(execution.shapes)
        recorder.expect(count == len(self.case.outputs), stimulus, "one shape per output", count, check="GEN-24")
        for i, (shape, expected) in enumerate(zip(execution.shapes, self.case.outputs, strict=True)):
            sufficient = shape.is_sufficient
            recorder.expect(
                sufficient == (i > 0), f"isSufficient of output {i}", str(i > 0), sufficient, check="GEN-25"
            )
            dimensions, returned = list(expected.array.shape), list(shape.dimensions)
            fits = len(dimensions) == len(returned) and all(
                length in (0, dimension) for dimension, length in zip(dimensions, returned, strict=True)
            )
            recorder.expect(fits, f"dimensions of output {i}", str(dimensions), returned, check="GEN-26")

    def endless_loop(self, recorder: CheckRecorder, execution: ExecutionOutcome) -> None:
        """Check that the loop timeout has ended an endless loop."""
        _allow_general_failure(execution)
        missed = execution.outcome.is_missed_deadline
        recorder.expect(
            missed, "an endless loop with a timeout of 1 ms", "MISSED_DEADLINE_*", execution.outcome, check="GEN-33"
        )


def must_be_refused(check: str, situation: str) -> OutcomeCheck:
    """Return a check that a fenced execution fails with INVALID_ARGUMENT."""

    def check_outcome(recorder: CheckRecorder, execution: ExecutionOutcome) -> None:
        if check != "GEN-16":
            _allow_general_failure(execution)
        recorder.expect_status(
            execution.outcome, f"a fenced execution, {situation}", ErrorStatus.INVALID_ARGUMENT, check=check
        )

    return check_outcome


def _allow_general_failure(execution: ExecutionOutcome) -> None:
    if execution.outcome.status == ErrorStatus.GENERAL_FAILURE:
        raise Skipped("X2", f"dynamic output shapes are not supported: {execution.outcome}")
