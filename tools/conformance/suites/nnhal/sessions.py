"""Sessions and the objects they own (NNHAL-09 to -13)."""

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import memory_pb2, session_pb2
from tools.conformance.check import Judge
from tools.conformance.gate import prepared_model
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, named, prepared, request_of
from tools.conformance.target import Answer, Target, called, mapped

NOBODYS = bytes(16)
"""A handle that was never given."""


def _execute(target: Target, model: bytes) -> Answer:
    return target.execute(model, request_of("add_float")).answer


@check("NNHAL-09")
def models_of_other_sessions(target: Target, judge: Judge) -> None:
    """They look like handles that were never given, and cannot be released."""
    with target.another() as other, prepared(other, "add_float") as model:
        theirs, nobodys = _execute(target, model), _execute(target, NOBODYS)
        unknown = nobodys.kind == ErrorKind.UNKNOWN_HANDLE
        judge.expect("NNHAL-09", unknown, "executing a handle that was never given", "UNKNOWN_HANDLE", nobodys)
        judge.expect("NNHAL-09", theirs == nobodys, "executing another session's model", str(nobodys), theirs)
        target.release(model)
        executed = other.execute(model, request_of("add_float"))
        expect_right(judge, "NNHAL-09", "add_float", executed, "a model that another session tried to release")


@check("NNHAL-10")
def memories_of_other_sessions(target: Target, judge: Judge) -> None:
    """They can neither be read, nor written, nor used as a pool, nor released."""
    with target.another() as other:
        data = b"their own bytes"
        memory = other.filled(data)
        for what, use in _USES.items():
            theirs, nobodys = use(target, memory), use(target, NOBODYS)
            same = theirs == nobodys and nobodys.kind == ErrorKind.UNKNOWN_HANDLE
            judge.expect("NNHAL-10", same, f"{what} another session's memory", str(nobodys), theirs)
        target.release(memory)
        judge.expect(
            "NNHAL-10", other.read(memory) == data, "memory that another session tried", "unchanged", "changed"
        )


def _read(target: Target, memory: bytes) -> Answer:
    request = memory_pb2.ReadRequest(session=target.session, memory=memory)
    return target.call("MemoryService", "Read", request)


def _use_as_pool(target: Target, memory: bytes) -> Answer:
    model = named("add_float").model()
    model.pools.append(mapped(memory))
    return target.supported_operations(model)[0]


_USES = {
    "reading": _read,
    "writing": lambda target, memory: target.upload(memory, b"x"),
    "preparing with": _use_as_pool,
}


@check("NNHAL-11")
def released_objects(target: Target, judge: Judge) -> None:
    """They are as if they had never been; a release never fails."""
    with prepared(target, "add_float") as model:
        memory = target.filled(b"1234")
        target.release(model, memory, NOBODYS)
        answer = _execute(target, model)
        judge.expect("NNHAL-11", answer == _execute(target, NOBODYS), "executing a released model", "no such", answer)
        for what, use in _USES.items():
            answer = use(target, memory)
            judge.expect("NNHAL-11", answer == use(target, NOBODYS), f"{what} a released memory", "no such", answer)
        request = session_pb2.ReleaseRequest(session=target.session, handles=[model, memory, NOBODYS])
        answer, _ = called(target.sessions.Release, request)
        judge.expect("NNHAL-11", answer.status == ErrorStatus.NONE, "releasing again", "NONE", answer)


@check("NNHAL-12")
def closed_sessions(target: Target, judge: Judge) -> None:
    """Every call says so, and nothing of it can be had again."""
    with target.another() as other:
        model = prepared_model(other, named("add_float").model(), Judge()).model
        answer, _ = called(other.sessions.Close, session_pb2.CloseRequest(session=other.session))
        judge.expect("NNHAL-12", answer.status == ErrorStatus.NONE, "Session.Close", "NONE", answer)
        for what, answer in {
            "executing": _execute(other, model),
            "getSupportedOperations": other.supported_operations(named("add_float").model())[0],
            "preparing": other.prepare(named("add_float").model()).launch,
            "MemoryService.Create": other.create(4)[0],
            "taking it up again": _reopened(target, other.session),
        }.items():
            lost = answer.kind == ErrorKind.SESSION_LOST
            judge.expect("NNHAL-12", lost, f"{what} in a closed session", "SESSION_LOST", answer)
        answer = _execute(target, model)
        judge.expect("NNHAL-12", answer == _execute(target, NOBODYS), "a closed session's model", "no such", answer)


def _reopened(target: Target, session: bytes) -> Answer:
    def first_event(request: session_pb2.OpenRequest, timeout: float) -> session_pb2.SessionEvent:
        return next(iter(target.sessions.Open(request, timeout=timeout)))

    return called(first_event, _open(session))[0]


def _open(session: bytes) -> session_pb2.OpenRequest:
    return session_pb2.OpenRequest(session=session, client_name="nnhal conformance")


@check("NNHAL-13")
def session_taken_up_again(target: Target, judge: Judge) -> None:
    """Its objects are still there."""
    with target.another() as other, prepared(other, "add_float") as model:
        other.stream.cancel()
        other.stream = other.sessions.Open(_open(other.session))
        opened = next(iter(other.stream)).opened
        same = opened.session == other.session
        judge.expect("NNHAL-13", same, "taking up a session whose stream broke", "the same session", "another")
        executed = other.execute(model, request_of("add_float"))
        expect_right(judge, "NNHAL-13", "add_float", executed, "a model of a session that was taken up again")
