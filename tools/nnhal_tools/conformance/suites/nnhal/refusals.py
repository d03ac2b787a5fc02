"""Details of errors (NNHAL-03 to -06, -22, -24, -25)."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import setitem

import grpc
from google.protobuf.message_factory import GetMessageClass

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder, UnsupportedCase
from nnhal_tools.conformance.device.calls import parse_error
from nnhal_tools.conformance.device.options import RunOptions, both_preparations
from nnhal_tools.conformance.device.results import CallOutcome
from nnhal_tools.conformance.device.target import METHODS, Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, prepared_model

MAX_REASON_BYTES = 2048
MAX_INLINE_BYTES = 2 * 2**20

CODES = {
    ErrorStatus.INVALID_ARGUMENT: "INVALID_ARGUMENT",
    ErrorStatus.DEVICE_UNAVAILABLE: "UNAVAILABLE",
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: "DEADLINE_EXCEEDED",
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: "DEADLINE_EXCEEDED",
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: "RESOURCE_EXHAUSTED",
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: "RESOURCE_EXHAUSTED",
    ErrorStatus.GENERAL_FAILURE: "INTERNAL",
}
KIND_CODES = {
    ErrorKind.UNIMPLEMENTED: "UNIMPLEMENTED",
    ErrorKind.SESSION_LOST: "FAILED_PRECONDITION",
    ErrorKind.UNKNOWN_HANDLE: "NOT_FOUND",
}
"""gRPC codes of the contract. The kind takes precedence over the status."""


INVALID_MODEL_EDITS: dict[str, Callable[[types_pb2.Model], None]] = {
    "operand 1": lambda model: setattr(model.main.operands[1], "scale", 1.0),
    "operation 0": lambda model: setitem(model.main.operations[0].inputs, 1, 99),
    "operation 0 ": lambda model: setattr(model.main.operations[0], "type", 106),
}
"""Edits that make a model invalid, by the location that the reason must name."""


def _invalid_models() -> Iterator[tuple[str, types_pb2.Model]]:
    for location, change in INVALID_MODEL_EDITS.items():
        model = builtin_case("add_float").model()
        change(model)
        yield location.strip(), model


@check("NNHAL-03")
def _model_refusals_name_the_rule(target: Target, recorder: CheckRecorder) -> None:
    for location, model in _invalid_models():
        answer, _ = target.supported_operations(model)
        _expect_named(recorder, answer, f"getSupportedOperations, invalid {location}", location)


INVALID_REQUEST_EDITS: dict[str, Callable[[types_pb2.Request], None]] = {
    "input 1": lambda request: setattr(request.inputs[1].location, "length", request.inputs[1].location.length - 4),
    "output 0": lambda request: setattr(request.outputs[0].location, "pool_index", 7),
}


@check("NNHAL-04")
def _request_refusals_name_the_rule(target: Target, recorder: CheckRecorder) -> None:
    with prepared_model(target, "add_float") as model:
        for location, change in INVALID_REQUEST_EDITS.items():
            request = builtin_request("add_float")
            change(request)
            answer = target.execute(model, request).outcome
            _expect_named(recorder, answer, f"SYNC, invalid {location}", location)


def _expect_named(recorder: CheckRecorder, answer: CallOutcome, stimulus: str, location: str) -> None:
    valid = answer.status == ErrorStatus.INVALID_ARGUMENT and bool(answer.rule) and location in answer.reason
    got = f"{answer}, rule {answer.rule!r}"
    recorder.expect(valid, stimulus, f"a rule and a reason that names {location}", got)


@check("NNHAL-05")
def _callback_and_launch_agree(target: Target, recorder: CheckRecorder) -> None:
    for location, model in _invalid_models():
        for options in both_preparations():
            outcome = target.prepare(model, options)
            launch, callback = outcome.launch, outcome.callback
            same = (launch.status, launch.reason, launch.rule) == (callback.status, callback.reason, callback.rule)
            valid = same and bool(outcome.callbacks) and launch.status != ErrorStatus.NONE and bool(launch.reason)
            got = f"launch {launch} {launch.rule}, callback {callback} {callback.rule}"
            recorder.expect(valid, f"{options.call}, invalid {location}", "equal status, reason and rule", got)


def _sample_errors(target: Target) -> Iterator[tuple[str, CallOutcome]]:
    """Yield one error of each kind that every device can produce."""
    (_, model), *_ = _invalid_models()
    yield "an invalid model", target.supported_operations(model)[0]
    yield "an unknown handle", target.execute(bytes(16), builtin_request("add_float")).outcome
    yield "a malformed handle", target.execute(b"?", builtin_request("add_float")).outcome
    yield "an unknown session", target.call("Device.GetSupportedOperations", session=bytes(16), model=model)[0]
    long = builtin_case("add_float").model()
    long.extension_name_to_prefix.add(name="X" * 100_000, prefix=1)
    yield "a long reason", target.supported_operations(long)[0]
    with prepared_model(target, "while_without_end") as endless:
        run = RunOptions(loop_timeout_ns=1_000_000)
        yield "a missed deadline", target.execute(endless, builtin_request("while_without_end"), run).outcome


@check("NNHAL-06")
def errors_have_the_right_code(target: Target, recorder: CheckRecorder) -> None:
    """Check kind, gRPC code and length of the reason of errors."""
    kinds = {"an unknown handle": ErrorKind.UNKNOWN_HANDLE, "an unknown session": ErrorKind.SESSION_LOST}
    for situation, answer in _sample_errors(target):
        code = KIND_CODES.get(ErrorKind(answer.kind)) or CODES[ErrorStatus(answer.status)]
        recorder.expect(answer.code == code, situation, code, f"{answer.code}, {answer}")
        kind = kinds.get(situation, answer.kind)
        recorder.expect(answer.kind == kind, situation, f"kind {int(kind)}", f"kind {answer.kind}")
        size = len(answer.reason.encode())
        recorder.expect(0 < size <= MAX_REASON_BYTES, situation, "a reason of at most 2 KiB", f"{size} bytes")


@check("NNHAL-22")
def inline_limit_is_named(target: Target, recorder: CheckRecorder) -> None:
    """Check that one inline byte too many fails, and that the error names a limit that the session announced."""
    model = builtin_case("add_float").model()
    model.pools.add(inline=bytes(MAX_INLINE_BYTES + 1))
    answer, _ = target.supported_operations(model)
    limit = target.opened.limits.get(answer.limit)
    valid = answer.kind == ErrorKind.LIMIT and limit is not None and limit <= MAX_INLINE_BYTES
    got = f"{answer}, kind {answer.kind}, limit {answer.limit!r} of {limit}"
    recorder.expect(valid, f"{MAX_INLINE_BYTES + 1} inline bytes", "kind LIMIT and the name of the limit", got)


@check("NNHAL-24")
def _unknown_device_is_refused(target: Target, recorder: CheckRecorder) -> None:
    device = "no such device"
    for name, method in METHODS.items():
        if name.startswith("Device.") and "device" in method.input_type.fields_by_name:
            with suppress(UnsupportedCase):
                answer, _ = target.call(name, device=device)
                stimulus = f"{method.name} of device {device!r}"
                recorder.expect_status(answer, stimulus, ErrorStatus.INVALID_ARGUMENT)


@check("NNHAL-25")
def unimplemented_calls_have_a_reason(target: Target, recorder: CheckRecorder) -> None:
    """Call every method of the contract with an empty request, and check the errors of unimplemented ones."""
    recorder.mark("NNHAL-25")
    for name, method in METHODS.items():
        if name == "Session.Open":
            continue
        try:
            target.invoke_raw(name, GetMessageClass(method.input_type)())
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                _expect_reason(recorder, parse_error(error), name)


def _expect_reason(recorder: CheckRecorder, answer: CallOutcome | None, call: str) -> None:
    valid = (
        answer is not None
        and answer.kind == ErrorKind.UNIMPLEMENTED
        and answer.status == ErrorStatus.GENERAL_FAILURE
        and bool(answer.reason)
    )
    got = "no details" if answer is None else f"{answer}, kind {answer.kind}"
    recorder.expect(valid, f"{call}, not implemented", "GENERAL_FAILURE, kind UNIMPLEMENTED, a reason", got)
