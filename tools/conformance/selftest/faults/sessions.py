"""Faults in sessions, handles, memory, and in how errors are told."""

from typing import Any

import grpc

from nnhal.v1 import memory_pb2, session_pb2
from tools.conformance.selftest.fault import ALL, PREPARE, changed_detail, fault, with_errors
from tools.conformance.selftest.proxy import Call, Refusal, detail_of


@fault("NNHAL-09", on=(PREPARE, "PreparedModel.*"))
def models_not_isolated(call: Call, request: Any) -> Any:
    """A prepared model can be used from every session."""
    if call.streams:
        return _with_owner(call, request)
    request.session = call.kept.get(request.prepared_model, request.session)
    return call.forward(request)


def _with_owner(call: Call, request: Any) -> Any:
    for event in call.forward(request):
        if event.notify.prepared_model:
            call.kept[event.notify.prepared_model] = request.session
        yield event


@fault("NNHAL-10", on=("MemoryService.Create", "MemoryService.Read"))
def memories_not_isolated(call: Call, request: Any) -> Any:
    """A memory can be read from every session."""
    if call.streams:
        request.session = call.kept.get(request.memory, request.session)
        return call.forward(request)
    response = call.forward(request)
    call.kept[response.memory] = request.session
    return response


@fault("NNHAL-11", on=("Session.Release",))
def released_object_usable(call: Call, request: Any) -> Any:
    """Releasing does nothing: a released object can still be used."""
    return session_pb2.ReleaseResponse()


@fault("NNHAL-12", on=("Session.Close",))
def closed_session_lives_on(call: Call, request: Any) -> Any:
    """Closing a session does nothing."""
    return session_pb2.CloseResponse()


@fault("NNHAL-13", on=("Session.Open",))
def session_never_taken_up_again(call: Call, request: Any) -> Any:
    """Taking up a session opens a new one."""
    request.session = b""
    return call.forward(request)


@fault("NNHAL-19", on=("MemoryService.Create",))
def digest_unchecked(call: Call, request: Any) -> Any:
    """The digest of an upload is not looked at, and the memory stays writable."""
    request.sha256 = b""
    return call.forward(request)


@fault("NNHAL-20", on=("MemoryService.Create",))
def known_bytes_asked_for_again(call: Call, request: Any) -> Any:
    """Bytes that the service has already must be sent again."""
    response = call.forward(request)
    response.complete = False
    return response


@fault("NNHAL-21", on=("MemoryService.Upload",))
def writing_outside_a_memory_accepted(call: Call, request: Any) -> Any:
    """What is written outside a memory is lost without a word."""
    try:
        return call.forward(request)
    except grpc.RpcError:
        return memory_pb2.UploadResponse()


@fault("NNHAL-06", on=(ALL,))
def code_unknown(call: Call, request: Any) -> Any:
    """Every error has the gRPC code UNKNOWN; its details are right."""

    def change(error: grpc.RpcError) -> Exception:
        detail = detail_of(error)
        return error if detail is None else Refusal(grpc.StatusCode.UNKNOWN, detail)

    return with_errors(call, request, change)


@fault("NNHAL-22", on=(ALL,))
def limit_not_named(call: Call, request: Any) -> Any:
    """A refusal because of a limit does not name the limit."""

    def change(detail: Any) -> None:
        detail.limit = ""

    return with_errors(call, request, changed_detail(change))


@fault("NNHAL-25", on=("Device.ListBackends",))
def unimplemented_without_a_reason(call: Call, request: Any) -> Any:
    """A call that is not offered fails with the code UNIMPLEMENTED alone."""
    raise Refusal(grpc.StatusCode.UNIMPLEMENTED)
