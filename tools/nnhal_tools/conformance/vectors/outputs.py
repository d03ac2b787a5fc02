"""Checks of an execution's results against its vector (GEN-12, GEN-13, GEN-17, GEN-18)."""

from collections.abc import Sequence

from nnhal.types import DTYPES, AnyArray
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.output_difference import first_difference, multinomial_difference


def check_timing(
    recorder: CheckRecorder, execution: ExecutionOutcome, measure: bool, unmeasured: str = "GEN-12"
) -> None:
    """Check that timing is absent unless it was measured, and that the device's part is not longer than the driver's.

    Args:
        recorder: the recorder of the check.
        execution: the execution.
        measure: whether timing was requested.
        unmeasured: the id for timing that was not requested.

    Raises:
        CheckFailed: the timing is wrong.
    """
    device, driver = execution.timing
    if not measure:
        absent = (device, driver) == (-1, -1)
        recorder.expect(
            absent, "an execution without measureTiming", "timing (-1, -1)", execution.timing, check=unmeasured
        )
    else:
        plausible = -1 in (device, driver) or device <= driver
        recorder.expect(
            plausible, "an execution with measureTiming", "device <= driver", execution.timing, check="GEN-13"
        )


def check_shapes(recorder: CheckRecorder, case: Case, execution: ExecutionOutcome, check: str = "GEN-17") -> None:
    """Check that every returned shape is sufficient and has the vector's dimensions.

    Raises:
        CheckFailed: a shape is wrong.
    """
    for i, (shape, expected) in enumerate(zip(execution.shapes, case.outputs, strict=False)):
        right = shape.is_sufficient and tuple(shape.dimensions) == expected.array.shape
        expectation = f"{list(expected.array.shape)}, isSufficient True"
        got = f"{list(shape.dimensions)}, isSufficient {shape.is_sufficient}"
        recorder.expect(right, f"shape of output {i}", expectation, got, check=check)


def check_outputs(recorder: CheckRecorder, case: Case, execution: ExecutionOutcome, check: str = "GEN-18") -> None:
    """Check that every output equals the vector's, within its tolerance.

    Raises:
        CheckFailed: an output is wrong.
    """
    recorder.mark(check)
    arrays = output_arrays(case, execution, check)
    for i, (expected, array) in enumerate(zip(case.outputs, arrays, strict=True)):
        if difference := first_difference(expected, array):
            raise CheckFailed(
                check, f"data of output {i} of {case.main_operations[-1]}", difference.expected, difference.got
            )
    if problem := multinomial_difference(case, arrays):
        raise CheckFailed(check, "distribution of output 0", "the softmax of the input", problem)


def output_arrays(case: Case, execution: ExecutionOutcome, check: str) -> Sequence[AnyArray]:
    """Return the outputs of an execution, in the vector's shapes.

    Raises:
        CheckFailed: an output is missing or has a wrong size.
    """
    if len(execution.outputs) != len(case.outputs):
        raise CheckFailed(check, "the number of outputs", str(len(case.outputs)), str(len(execution.outputs)))
    arrays = []
    for i, (expected, data) in enumerate(zip(case.outputs, execution.outputs, strict=True)):
        size = expected.array.nbytes
        if size == 0 and data is not None:
            data = data[:0]  # the region of a zero-sized output has one byte
        if data is None or data.size != size:
            got = "nothing" if data is None else f"{data.size} bytes"
            raise CheckFailed(check, f"data of output {i}", f"{size} bytes", got)
        arrays.append(data.view(DTYPES[expected.type]).reshape(expected.array.shape))
    return arrays
