"""Checks of an execution's results against its vector (GEN-12, GEN-13, GEN-17, GEN-18; checklist 3.8)."""

from collections.abc import Sequence

import numpy as np

from nnhal.recording.tensor_difference import first_difference
from nnhal.types import DTYPES, AnyArray
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.vectors.case import Case


def check_timing(
    recorder: CheckRecorder, execution: ExecutionOutcome, measure: bool, unmeasured: str = "GEN-12"
) -> None:
    """Check that timing is absent unless it was measured, and that the device's part is not longer than the driver's.

    `unmeasured`: the id for timing that was not requested.
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
    """Check that every returned shape is sufficient and has the vector's dimensions."""
    for i, (shape, expected) in enumerate(zip(execution.shapes, case.outputs, strict=False)):
        right = shape.is_sufficient and tuple(shape.dimensions) == expected.array.shape
        expectation = f"{list(expected.array.shape)}, isSufficient True"
        got = f"{list(shape.dimensions)}, isSufficient {shape.is_sufficient}"
        recorder.expect(right, f"shape of output {i}", expectation, got, check=check)


def check_outputs(recorder: CheckRecorder, case: Case, execution: ExecutionOutcome, check: str = "GEN-18") -> None:
    """Check that every output equals the vector's, within its tolerance."""
    recorder.mark(check)
    arrays = output_arrays(case, execution, check)
    for i, (expected, array) in enumerate(zip(case.outputs, arrays, strict=True)):
        tolerance = (expected.atol, expected.rtol)
        difference = None if expected.ignored else first_difference(expected.type, array, expected.array, tolerance)
        if difference:
            raise CheckFailed(check, f"data of output {i} of {case.main_operations[-1]}", *difference)
    if problem := multinomial_difference(case, arrays):
        raise CheckFailed(check, "distribution of output 0", "the softmax of the input", problem)


def output_arrays(case: Case, execution: ExecutionOutcome, check: str) -> Sequence[AnyArray]:
    """Return the outputs of an execution in the vector's shapes. All must exist and have the right size."""
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


def multinomial_difference(case: Case, outputs: Sequence[AnyArray]) -> str | None:
    """Compare the class frequencies of RANDOM_MULTINOMIAL with the softmax of its input, and return the worst one.

    Return None if all are within the tolerance, or the vector is of another operation.
    """
    tolerance = case.multinomial_tolerance
    logits = case.inputs[0]
    if tolerance is None or logits is None:
        return None
    powers = np.exp(logits.astype(np.float64).ravel())
    expected = powers / powers.sum()
    actual = np.bincount(outputs[0].ravel().astype(np.int64), minlength=expected.size) / outputs[0].size
    worst = int(np.abs(actual - expected).argmax())
    if abs(actual[worst] - expected[worst]) <= tolerance:
        return None
    return f"class {worst} has frequency {actual[worst]:.4f}, expected {expected[worst]:.4f} within {tolerance}"
