"""Sessions and their objects (NNHAL-09 to -13), and redirects (NNHAL-43)."""

from collections.abc import Sequence

from nnhal.types import ErrorKind
from nnhal.v1 import session_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.calls import invoke
from nnhal_tools.conformance.device.preparation_gate import query_and_prepare
from nnhal_tools.conformance.device.results import CallOutcome
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, expect_correct, prepared_model

UNKNOWN_HANDLE = bytes(16)
"""Handle that was never issued."""
UNKNOWN = "the error of an unknown handle"


def _execute(target: Target, model: bytes) -> CallOutcome:
    return target.execute(model, builtin_request("add_float")).outcome


@check("NNHAL-09")
def models_of_other_sessions(target: Target, recorder: CheckRecorder) -> None:
    """Check that models of other sessions are indistinguishable from unknown handles and cannot be released."""
    with target.new_session() as other, prepared_model(other, "add_float") as model:
        foreign, unknown_outcome = _execute(target, model), _execute(target, UNKNOWN_HANDLE)
        is_unknown = unknown_outcome.kind == ErrorKind.UNKNOWN_HANDLE
        recorder.expect(is_unknown, "executing a handle that was never issued", "UNKNOWN_HANDLE", unknown_outcome)
        recorder.expect(foreign == unknown_outcome, "executing another session's model", str(unknown_outcome), foreign)
        target.release(model)
        execution = other.execute(model, builtin_request("add_float"))
        expect_correct(recorder, "add_float", execution, "a model that another session tried to release")


@check("NNHAL-10")
def memories_of_other_sessions(target: Target, recorder: CheckRecorder) -> None:
    """Check that memories of other sessions cannot be read, written, used as a pool, or released."""
    with target.new_session() as other:
        data = b"their own bytes"
        memory = other.memory_with(data)
        for action, use in _USES.items():
            foreign, unknown_outcome = use(target, memory), use(target, UNKNOWN_HANDLE)
            same = foreign == unknown_outcome and unknown_outcome.kind == ErrorKind.UNKNOWN_HANDLE
            recorder.expect(same, f"{action} another session's memory", str(unknown_outcome), foreign)
        target.release(memory)
        recorder.expect(
            other.read_memory(memory) == data, "memory that another session tried to write", "unchanged", "changed"
        )


def _read(target: Target, memory: bytes) -> CallOutcome:
    return target.call("MemoryService.Read", memory=memory)[0]


def _use_as_pool(target: Target, memory: bytes) -> CallOutcome:
    model = builtin_case("add_float").model()
    model.pools.append(mapped_pool(memory))
    return target.supported_operations(model)[0]


_USES = {
    "reading": _read,
    "writing": lambda target, memory: target.upload(memory, b"x"),
    "preparing with": _use_as_pool,
}


@check("NNHAL-11")
def released_objects(target: Target, recorder: CheckRecorder) -> None:
    """Check that released objects are unknown, and that a release never fails."""
    with prepared_model(target, "add_float") as model:
        memory = target.memory_with(b"1234")
        target.release(model, memory, UNKNOWN_HANDLE)
        answer = _execute(target, model)
        recorder.expect(answer == _execute(target, UNKNOWN_HANDLE), "executing a released model", UNKNOWN, answer)
        for action, use in _USES.items():
            answer = use(target, memory)
            recorder.expect(answer == use(target, UNKNOWN_HANDLE), f"{action} a released memory", UNKNOWN, answer)
        answer, _ = target.call("Session.Release", handles=[model, memory, UNKNOWN_HANDLE])
        recorder.expect_status(answer, "releasing again")


@check("NNHAL-12")
def _closed_sessions(target: Target, recorder: CheckRecorder) -> None:
    with target.new_session() as other:
        model = query_and_prepare(other, builtin_case("add_float").model(), CheckRecorder()).model
        answer, _ = other.call("Session.Close")
        recorder.expect_status(answer, "Session.Close")
        for action, answer in {
            "executing": _execute(other, model),
            "getSupportedOperations": other.supported_operations(builtin_case("add_float").model())[0],
            "preparing": other.prepare(builtin_case("add_float").model()).launch,
            "MemoryService.Create": other.create_memory(4)[0],
            "resuming": _resume(target, other.session),
        }.items():
            lost = answer.kind == ErrorKind.SESSION_LOST
            recorder.expect(lost, f"{action} in a closed session", "SESSION_LOST", answer)
        answer = _execute(target, model)
        recorder.expect(
            answer == _execute(target, UNKNOWN_HANDLE), "executing a closed session's model", UNKNOWN, answer
        )


def _resume(target: Target, session: bytes) -> CallOutcome:
    return invoke(lambda _, timeout: next(target.start("Session.Open", timeout=timeout, session=session)), None)[0]


def _open_request(session: bytes) -> session_pb2.OpenRequest:
    return session_pb2.OpenRequest(session=session, client_name="nnhal conformance")


@check("NNHAL-13")
def _resumed_session(target: Target, recorder: CheckRecorder) -> None:
    with target.new_session() as other, prepared_model(other, "add_float") as model:
        other.stream.cancel()
        other.stream = other.rpc("Session.Open")(_open_request(other.session))
        opened = next(iter(other.stream)).opened
        same = opened.session == other.session
        recorder.expect(same, "resuming a session whose stream broke", "the same session", "another")
        execution = other.execute(model, builtin_request("add_float"))
        expect_correct(recorder, "add_float", execution, "a model of a resumed session")


@check("NNHAL-43")
def _redirects(target: Target, recorder: CheckRecorder) -> None:
    (opened,) = _open_at_service(target, recorder, "a client that accepts no redirect")
    recorder.expect(opened.HasField("opened"), "a client that accepts no redirect", "a session", opened)
    events = _open_at_service(target, recorder, "a client that accepts a redirect", accept_redirect=True)
    _expect_session(target, recorder, events, "a client that accepts a redirect")
    with target.new_session() as other:
        other.stream.cancel()
        stimulus = "resuming a session at the address of the service"
        events = _open_at_service(target, recorder, stimulus, session=other.session, accept_redirect=True)
        _expect_session(target, recorder, events, stimulus, other.session)


def _open_at_service(
    target: Target, recorder: CheckRecorder, stimulus: str, *, session: bytes = b"", accept_redirect: bool = False
) -> list[session_pb2.SessionEvent]:
    """Open or resume a session. Return its first event."""
    request = _open_request(session)
    request.accept_redirect = accept_redirect
    events = target.open_at_service(request)
    recorder.expect(len(events) == 1, stimulus, "no event after a redirect", len(events))
    return events[:1]


def _expect_session(
    target: Target,
    recorder: CheckRecorder,
    events: Sequence[session_pb2.SessionEvent],
    stimulus: str,
    session: bytes = b"",
) -> None:
    """Check that the first event opens a session, if need be at the address of a redirect."""
    event: session_pb2.SessionEvent | None = events[0]
    if events[0].HasField("redirect"):
        event = target.follow(events[0].redirect, session)
    if event is None:  # a firewall may be in the way: the client would stay where it was
        return
    is_session = event.HasField("opened") and session in (b"", event.opened.session)
    recorder.expect(is_session, stimulus, "the session" if session else "a session", event)
