"""The suite `generated`: every vector is prepared and executed as the checklist's GEN section says, on the path SYNC.

Each case runs with fully specified outputs; then, unless it has a RANK, IF or WHILE, with outputs of unspecified
dimensions and with output 0 one byte too small; each with and without timing. An endless loop must be ended.
"""

import time
from collections.abc import Sequence

from nnhal.types import DTYPES, AnyArray, ErrorStatus
from tools.conformance.check import CheckFailed, Result, Skipped, Status
from tools.conformance.compare import first_difference, multinomial_difference
from tools.conformance.request import build
from tools.conformance.target import Executed, NotServiceSpecific, Prepared, Target, Unsupported
from tools.conformance.vectors import Case

SUITE = "generated"
PATH = "SYNC"

LOOP_TIMEOUT_NS = 1_000_000
"""What an endless loop is given."""

_NO_DYNAMIC_SHAPE = frozenset({"RANK", "IF", "WHILE"})
_MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


def run(target: Target, case: Case) -> Result:
    """Runs one case; never raises for what the device does."""
    result = Result(case.name, SUITE, PATH, Status.PASSED, operations=[(name, "") for name in case.operations])
    started = time.perf_counter()
    try:
        _run(target, case, result)
    except CheckFailed as failed:
        result.status, result.check, result.reason = Status.FAILED, failed.check, str(failed)
    except Skipped as skipped:
        result.status, result.check, result.reason = Status.SKIPPED, skipped.allowance, str(skipped)
    except Unsupported as unsupported:
        result.status, result.reason = Status.UNSUPPORTED, str(unsupported)
    except NotServiceSpecific as error:
        result.status, result.check, result.reason = Status.FAILED, "GEN-04", f"GEN-04: {error}"
    result.seconds = time.perf_counter() - started
    return result


def _run(target: Target, case: Case, result: Result) -> None:
    if case.expect_failure and not case.is_endless_loop:
        _must_fail(target, case)
        return
    prepared = _prepare(target, case, result)
    try:
        if case.is_endless_loop:
            _endless_loop(target, case, prepared.model)
            return
        _fully_specified(target, case, prepared.model)
    finally:
        target.release(prepared.model)
    if not _NO_DYNAMIC_SHAPE & set(case.operations):
        _dynamic_shape(target, case)


def _prepare(target: Target, case: Case, result: Result | None = None, *, unspecified: bool = False) -> Prepared:
    """The preparation gate (PREP-01 to PREP-06)."""
    model = target.own_pools(case.model(unspecified_outputs=unspecified))
    answer, supported = target.supported_operations(model)
    if answer.status != ErrorStatus.NONE:
        raise CheckFailed("PREP-01", "getSupportedOperations", "NONE", str(answer))
    if not supported:
        raise CheckFailed("PREP-02", "getSupportedOperations", "an answer for each operation", "an empty list")
    prepared = target.prepare(model)
    if prepared.launch.status != ErrorStatus.NONE:
        raise CheckFailed("PREP-03", "prepareModel", "a launch that is OK", str(prepared.launch))
    if not prepared.callbacks:
        raise CheckFailed("PREP-04", "prepareModel", "a callback", "none")
    status = prepared.callback.status
    if (status == ErrorStatus.NONE) != bool(prepared.model):
        raise CheckFailed("PREP-06", "prepareModel", "a model exactly with NONE", str(prepared.callback))
    if status != ErrorStatus.NONE:
        if all(supported):
            raise CheckFailed("PREP-05", "prepareModel of a supported model", "NONE", str(prepared.callback))
        raise Skipped("X1", f"not fully supported: {prepared.callback}")
    if result is not None and len(prepared.backends) == len(case.operations):
        result.operations = list(zip(case.operations, prepared.backends, strict=True))
    return prepared


def _execute(
    target: Target, case: Case, model: bytes, *, measure: bool, short: bool = False, loop_timeout_ns: int | None = None
) -> Executed:
    sizes = [output.array.nbytes for output in case.outputs]
    request, data = build(case.inputs, sizes, short=short)
    request.pools[0].pool.CopyFrom(target.memory(data))
    executed = target.execute(model, request, measure=measure, loop_timeout_ns=loop_timeout_ns)
    if request.pools[0].pool.WhichOneof("memory") == "mapped":
        target.release(request.pools[0].pool.mapped.memory)
    _check_timing(executed, measure)
    return executed


def _check_timing(executed: Executed, measure: bool) -> None:
    device, driver = executed.timing
    if not measure and (device, driver) != (-1, -1):
        raise CheckFailed("GEN-12", "an execution without measureTiming", "timing (-1, -1)", f"({device}, {driver})")
    if measure and device != -1 and driver != -1 and device > driver:
        raise CheckFailed("GEN-13", "an execution with measureTiming", "device <= driver", f"{device} > {driver}")


def _fully_specified(target: Target, case: Case, model: bytes) -> None:
    for measure in (False, True):
        executed = _execute(target, case, model, measure=measure)
        if executed.answer.status != ErrorStatus.NONE:
            raise CheckFailed("GEN-14", "outputs fully specified", "NONE", str(executed.answer))
        if len(executed.shapes) not in (0, len(case.outputs)):
            raise CheckFailed(
                "GEN-15", "outputs fully specified", "no shapes or one per output", str(len(executed.shapes))
            )
        _check_outputs(case, executed)


def _dynamic_shape(target: Target, case: Case) -> None:
    prepared = _prepare(target, case, unspecified=True)
    try:
        for measure in (False, True):
            _unspecified(target, case, prepared.model, measure)
            if case.outputs[0].array.nbytes > 1:  # X8
                _insufficient(target, case, prepared.model, measure)
    finally:
        target.release(prepared.model)


def _unspecified(target: Target, case: Case, model: bytes, measure: bool) -> None:
    executed = _execute(target, case, model, measure=measure)
    _allow_general_failure(executed)
    if executed.answer.status != ErrorStatus.NONE:
        raise CheckFailed("GEN-20", "outputs of unspecified dimensions", "NONE", str(executed.answer))
    if len(executed.shapes) != len(case.outputs):
        raise CheckFailed(
            "GEN-21", "outputs of unspecified dimensions", "one shape per output", str(len(executed.shapes))
        )
    _check_outputs(case, executed)


def _insufficient(target: Target, case: Case, model: bytes, measure: bool) -> None:
    executed = _execute(target, case, model, measure=measure, short=True)
    _allow_general_failure(executed)
    if executed.answer.status != ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        raise CheckFailed("GEN-23", "output 0 a byte too small", "OUTPUT_INSUFFICIENT_SIZE", str(executed.answer))
    if len(executed.shapes) != len(case.outputs):
        raise CheckFailed("GEN-24", "output 0 a byte too small", "one shape per output", str(len(executed.shapes)))
    for i, (shape, expected) in enumerate(zip(executed.shapes, case.outputs, strict=True)):
        if shape.is_sufficient != (i > 0):
            raise CheckFailed("GEN-25", f"isSufficient of output {i}", str(i > 0), str(shape.is_sufficient))
        wanted, got = list(expected.array.shape), list(shape.dimensions)
        if len(wanted) != len(got) or any(g not in (0, w) for w, g in zip(wanted, got, strict=True)):
            raise CheckFailed("GEN-26", f"dimensions of output {i}", str(wanted), str(got))


def _allow_general_failure(executed: Executed) -> None:
    if executed.answer.status == ErrorStatus.GENERAL_FAILURE:
        raise Skipped("X2", f"dynamic output shapes are not supported: {executed.answer}")


def _check_outputs(case: Case, executed: Executed) -> None:
    for i, (shape, expected) in enumerate(zip(executed.shapes, case.outputs, strict=False)):
        if not shape.is_sufficient or tuple(shape.dimensions) != expected.array.shape:
            got = f"{list(shape.dimensions)}, isSufficient {shape.is_sufficient}"
            raise CheckFailed("GEN-17", f"shape of output {i}", str(list(expected.array.shape)), got)
    arrays = _arrays(case, executed)
    for i, (expected, array) in enumerate(zip(case.outputs, arrays, strict=True)):
        if difference := first_difference(expected, array):
            raise CheckFailed("GEN-18", f"data of output {i} of {case.main_operations[-1]}", "the vector's", difference)
    if difference := multinomial_difference(case, arrays):
        raise CheckFailed("GEN-18", "distribution of output 0", "the softmax of the input", difference)


def _arrays(case: Case, executed: Executed) -> Sequence[AnyArray]:
    arrays = []
    for i, (expected, data) in enumerate(zip(case.outputs, executed.outputs, strict=True)):
        if data is None or data.size != expected.array.nbytes:
            got = "nothing" if data is None else f"{data.size} bytes"
            raise CheckFailed("GEN-18", f"data of output {i}", f"{expected.array.nbytes} bytes", got)
        arrays.append(data.view(DTYPES[expected.type]).reshape(expected.array.shape))
    return arrays


def _endless_loop(target: Target, case: Case, model: bytes) -> None:
    for measure in (False, True):
        executed = _execute(target, case, model, measure=measure, loop_timeout_ns=LOOP_TIMEOUT_NS)
        _allow_general_failure(executed)
        if executed.answer.status not in _MISSED:
            raise CheckFailed("GEN-33", "an endless loop with 1 ms", "MISSED_DEADLINE_*", str(executed.answer))


def _must_fail(target: Target, case: Case) -> None:
    """Building, preparing or executing must fail; a driver may accept the model (as the NDK tests have it)."""
    model = target.own_pools(case.model())
    prepared = target.prepare(model)
    if not prepared.model:
        return
    executed = _execute(target, case, prepared.model, measure=False)
    target.release(prepared.model)
    if executed.answer.status == ErrorStatus.NONE:
        raise CheckFailed("VALREQ-11", "an execution that must fail", "an error", "NONE")
