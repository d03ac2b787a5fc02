"""How errors are told (NNHAL-03 to -06, -22, -24, -25)."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from tools.conformance.check import Judge
from tools.conformance.registry import check
from tools.conformance.samples import named, prepared, request_of
from tools.conformance.target import SERVICES, WATCHDOG_S, Answer, Preparing, Run, Target, called, told

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
"""The contract's table; the kind goes before the status."""


def _bad_scale(model: types_pb2.Model) -> None:
    model.main.operands[1].scale = 1.0


def _dangling_input(model: types_pb2.Model) -> None:
    model.main.operations[0].inputs[1] = 99


def _unknown_operation(model: types_pb2.Model) -> None:
    model.main.operations[0].type = 106  # type: ignore[assignment]


BAD_MODELS: dict[str, Callable[[types_pb2.Model], None]] = {
    "operand 1": _bad_scale,
    "operation 0": _dangling_input,
    "operation 0 ": _unknown_operation,
}
"""Changes that make a model invalid, by what the reason must name."""


def _bad_models() -> Iterator[tuple[str, types_pb2.Model]]:
    for place, change in BAD_MODELS.items():
        model = named("add_float").model()
        change(model)
        yield place.strip(), model


@check("NNHAL-03")
def model_refusals_name_the_rule(target: Target, judge: Judge) -> None:
    """The rule's id, and the operand or operation in words."""
    for place, model in _bad_models():
        answer, _ = target.supported_operations(model)
        _expect_named(judge, "NNHAL-03", answer, f"getSupportedOperations, {place} wrong", place)


def _short(request: types_pb2.Request) -> None:
    request.inputs[1].location.length -= 4


def _wrong_pool(request: types_pb2.Request) -> None:
    request.outputs[0].location.pool_index = 7


BAD_REQUESTS = {"input 1": _short, "output 0": _wrong_pool}


@check("NNHAL-04")
def request_refusals_name_the_rule(target: Target, judge: Judge) -> None:
    """The rule's id, and the argument in words."""
    with prepared(target, "add_float") as model:
        for place, change in BAD_REQUESTS.items():
            request = request_of("add_float")
            change(request)
            answer = target.execute(model, request).answer
            _expect_named(judge, "NNHAL-04", answer, f"SYNC, {place} wrong", place)


def _expect_named(judge: Judge, id_: str, answer: Answer, what: str, place: str) -> None:
    right = answer.status == ErrorStatus.INVALID_ARGUMENT and bool(answer.rule) and place in answer.reason
    got = f"{answer}, rule {answer.rule!r}"
    judge.expect(id_, right, what, f"a rule, and a reason that names {place}", got)


@check("NNHAL-05")
def callback_and_launch_agree(target: Target, judge: Judge) -> None:
    """One refusal, told twice."""
    for place, model in _bad_models():
        for with_config in (False, True):
            how = Preparing(with_config)
            outcome = target.prepare(model, how)
            launch, callback = outcome.launch, outcome.callback
            same = (launch.status, launch.reason, launch.rule) == (callback.status, callback.reason, callback.rule)
            right = same and bool(outcome.callbacks) and launch.status != ErrorStatus.NONE and bool(launch.reason)
            got = f"launch {launch} {launch.rule}, callback {callback} {callback.rule}"
            judge.expect("NNHAL-05", right, f"{how.call}, {place} wrong", "the same twice", got)


def _errors(target: Target) -> Iterator[tuple[str, Answer]]:
    """One error of each sort that every device can be brought to."""
    (_, model), *_ = _bad_models()
    yield "an invalid model", target.supported_operations(model)[0]
    yield "an unknown handle", target.execute(bytes(16), request_of("add_float")).answer
    yield "a handle that is none", target.execute(b"?", request_of("add_float")).answer
    lost = device_pb2.GetSupportedOperationsRequest(session=bytes(16), model=model)
    yield "an unknown session", called(target.device.GetSupportedOperations, lost)[0]
    long = named("add_float").model()
    long.extension_name_to_prefix.add(name="X" * 100_000, prefix=1)
    yield "a long reason", target.supported_operations(long)[0]
    with prepared(target, "while_without_end") as endless:
        run = Run(loop_timeout_ns=1_000_000)
        yield "a missed deadline", target.execute(endless, request_of("while_without_end"), run).answer


@check("NNHAL-06")
def errors_have_their_code(target: Target, judge: Judge) -> None:
    """Kind, status, gRPC code and length of the reason."""
    kinds = {"an unknown handle": ErrorKind.UNKNOWN_HANDLE, "an unknown session": ErrorKind.SESSION_LOST}
    for what, answer in _errors(target):
        wanted = KIND_CODES.get(ErrorKind(answer.kind)) or CODES[ErrorStatus(answer.status)]
        judge.expect("NNHAL-06", answer.code == wanted, what, wanted, f"{answer.code}, {answer}")
        kind = kinds.get(what, answer.kind)
        judge.expect("NNHAL-06", answer.kind == kind, what, f"kind {int(kind)}", f"kind {answer.kind}")
        size = len(answer.reason.encode())
        judge.expect("NNHAL-06", 0 < size <= MAX_REASON_BYTES, what, "a reason of at most 2 KiB", f"{size} bytes")


@check("NNHAL-22")
def inline_limit_is_named(target: Target, judge: Judge) -> None:
    """One byte more than the contract allows; the limit is one of those that the session was told."""
    model = named("add_float").model()
    model.pools.add(inline=bytes(MAX_INLINE_BYTES + 1))
    answer, _ = target.supported_operations(model)
    limit = target.opened.limits.get(answer.limit)
    right = answer.kind == ErrorKind.LIMIT and limit is not None and limit <= MAX_INLINE_BYTES
    got = f"{answer}, kind {answer.kind}, limit {answer.limit!r} of {limit}"
    judge.expect("NNHAL-22", right, f"{MAX_INLINE_BYTES + 1} inline bytes", "kind LIMIT, and which limit", got)


@check("NNHAL-24")
def unknown_device_is_refused(target: Target, judge: Judge) -> None:
    """By every call that names a device."""
    name = "no such device"
    descriptor, _ = SERVICES["Device"]
    for method in descriptor.methods:
        fields = method.input_type.fields_by_name
        if "device" not in fields:
            continue
        answer = _asked_of(target, method.name, name, "session" in fields)
        if answer is not None:
            refused = answer.status == ErrorStatus.INVALID_ARGUMENT
            judge.expect("NNHAL-24", refused, f"{method.name} of device {name!r}", "INVALID_ARGUMENT", answer)


def _asked_of(target: Target, method: str, device: str, in_session: bool) -> Answer | None:
    """How a call that names a device ends; None where it is not offered."""
    request: Any = GetMessageClass(SERVICES["Device"][0].methods_by_name[method].input_type)(device=device)
    if in_session:
        request.session = target.session
    try:
        target.attempt("Device", method, request)
    except grpc.RpcError as error:
        answer = told(error)
        return None if answer is None or answer.kind == ErrorKind.UNIMPLEMENTED else answer
    return Answer(ErrorStatus.NONE)


@check("NNHAL-25")
def what_is_not_offered_says_so(target: Target, judge: Judge) -> None:
    """Every call of the contract is tried with an empty request."""
    judge.checks["NNHAL-25"] = None
    for service, (descriptor, _) in SERVICES.items():
        for method in descriptor.methods:
            if (service, method.name) == ("Session", "Open"):
                continue
            try:
                target.attempt(service, method.name, timeout=WATCHDOG_S)
            except grpc.RpcError as error:
                assert isinstance(error, grpc.Call)
                if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                    _expect_reason(judge, told(error), f"{service}.{method.name}")


def _expect_reason(judge: Judge, answer: Answer | None, call: str) -> None:
    right = (
        answer is not None
        and answer.kind == ErrorKind.UNIMPLEMENTED
        and answer.status == ErrorStatus.GENERAL_FAILURE
        and bool(answer.reason)
    )
    got = "no details" if answer is None else f"{answer}, kind {answer.kind}"
    judge.expect("NNHAL-25", right, f"{call}, not offered", "GENERAL_FAILURE, kind UNIMPLEMENTED, a reason", got)
