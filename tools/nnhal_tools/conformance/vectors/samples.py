"""Built-in vectors for device checks: prepared models, requests and comparison of outputs."""

from collections.abc import Iterator
from contextlib import contextmanager

from nnhal.types import AnyArray
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.preparation_gate import SupportedOperations, query_and_prepare
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.vectors import builtin
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.outputs import check_outputs, check_shapes
from nnhal_tools.conformance.vectors.requests import inline_request


def builtin_case(name: str) -> Case:
    """Return a built-in vector by its name."""
    (case,) = [case for case in builtin.cases() if case.name == name]
    return case


def supported_model(target: Target, case: Case) -> types_pb2.Model:
    """Return the model of a vector if the device supports all of it, for checks that prepare it themselves.

    Raises:
        CheckFailed: PREP-01 or PREP-02.
        Skipped: X1.
    """
    model = case.model()
    SupportedOperations.query(target, model, CheckRecorder()).require_all()
    return model


def builtin_input(name: str) -> AnyArray:
    """Return input 0 of a built-in vector."""
    array = builtin_case(name).inputs[0]
    assert array is not None
    return array


@contextmanager
def prepared_model(target: Target, name: str, *, unspecified: bool = False) -> Iterator[bytes]:
    """Prepare a built-in model and yield its handle. `unspecified`: the outputs have unspecified dimensions.

    Raises:
        CheckFailed: the preparation gate fails.
        Skipped: X1.
    """
    model = query_and_prepare(target, builtin_case(name).model(unspecified_outputs=unspecified), CheckRecorder()).model
    try:
        yield model
    finally:
        target.release(model)


def builtin_request(name: str) -> types_pb2.Request:
    """Return the request of a built-in vector: inputs inline in pool 0, outputs in a ReturnedPool."""
    case = builtin_case(name)
    return inline_request(case.inputs, [output.array.nbytes for output in case.outputs])


def expect_correct(recorder: CheckRecorder, name: str, execution: ExecutionOutcome, stimulus: str) -> None:
    """Check that an execution of a built-in vector succeeded with the expected outputs."""
    recorder.expect_status(execution.outcome, stimulus)
    try:
        check_shapes(recorder, builtin_case(name), execution, recorder.id)
        check_outputs(recorder, builtin_case(name), execution, recorder.id)
    except CheckFailed as failed:
        raise CheckFailed(recorder.id, f"{stimulus}, {failed.stimulus}", failed.expected, failed.got) from None
