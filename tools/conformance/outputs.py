"""What an execution brought, held against its vector (GEN-12, GEN-13, GEN-17, GEN-18)."""

from collections.abc import Sequence

from nnhal.types import DTYPES, AnyArray
from tools.conformance.check import CheckFailed, Judge
from tools.conformance.compare import first_difference, multinomial_difference
from tools.conformance.target import Executed
from tools.conformance.vectors import Case


def check_timing(judge: Judge, executed: Executed, measure: bool, unmeasured: str = "GEN-12") -> None:
    """Timing that was not asked for is absent; the device's part is not longer than the whole."""
    device, driver = executed.timing
    if not measure:
        absent = (device, driver) == (-1, -1)
        judge.expect(unmeasured, absent, "an execution without measureTiming", "timing (-1, -1)", executed.timing)
    else:
        plausible = -1 in (device, driver) or device <= driver
        judge.expect("GEN-13", plausible, "an execution with measureTiming", "device <= driver", executed.timing)


def check_shapes(judge: Judge, case: Case, executed: Executed, check: str = "GEN-17") -> None:
    """Every shape given is sufficient and has the vector's dimensions."""
    for i, (shape, expected) in enumerate(zip(executed.shapes, case.outputs, strict=False)):
        right = shape.is_sufficient and tuple(shape.dimensions) == expected.array.shape
        wanted = f"{list(expected.array.shape)}, isSufficient True"
        got = f"{list(shape.dimensions)}, isSufficient {shape.is_sufficient}"
        judge.expect(check, right, f"shape of output {i}", wanted, got)


def check_outputs(judge: Judge, case: Case, executed: Executed, check: str = "GEN-18") -> None:
    """Every output is the vector's, within its tolerance."""
    judge.checks[check] = None
    arrays = output_arrays(case, executed, check)
    for i, (expected, array) in enumerate(zip(case.outputs, arrays, strict=True)):
        if difference := first_difference(expected, array):
            raise CheckFailed(
                check, f"data of output {i} of {case.main_operations[-1]}", difference.expected, difference.got
            )
    if problem := multinomial_difference(case, arrays):
        raise CheckFailed(check, "distribution of output 0", "the softmax of the input", problem)


def output_arrays(case: Case, executed: Executed, check: str) -> Sequence[AnyArray]:
    """The outputs that came back, in the vector's shapes.

    Raises:
        CheckFailed: one is missing or has another size.
    """
    if len(executed.outputs) != len(case.outputs):
        raise CheckFailed(check, "outputs that come back", str(len(case.outputs)), str(len(executed.outputs)))
    arrays = []
    for i, (expected, data) in enumerate(zip(case.outputs, executed.outputs, strict=True)):
        size = expected.array.nbytes
        if size == 0 and data is not None:
            data = data[:0]  # its region has one byte nevertheless
        if data is None or data.size != size:
            got = "nothing" if data is None else f"{data.size} bytes"
            raise CheckFailed(check, f"data of output {i}", f"{size} bytes", got)
        arrays.append(data.view(DTYPES[expected.type]).reshape(expected.array.shape))
    return arrays
