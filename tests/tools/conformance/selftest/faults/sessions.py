"""Faults in sessions, handles, memory and error details."""

from typing import Any

import grpc

from nnhal.v1 import memory_pb2, session_pb2
from nnhal_tools.conformance.device.calls import detail_of
from tests.tools.conformance.selftest.fault import ALL, PREPARE, edit_detail, fault, replace_errors
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall


@fault("NNHAL-09", on=(PREPARE, "PreparedModel.*"))
def models_not_isolated(call: ProxyCall, request: Any) -> Any:
    """Accept prepared models of other sessions."""
    if call.streams_responses:
        return _with_owner(call, request)
    request.session = call.state.get(request.prepared_model, request.session)
    return call.forward(request)


def _with_owner(call: ProxyCall, request: Any) -> Any:
    for event in call.forward(request):
        if event.notify.prepared_model:
            call.state[event.notify.prepared_model] = request.session
        yield event


@fault("NNHAL-10", on=("MemoryService.Create", "MemoryService.Read"))
def memories_not_isolated(call: ProxyCall, request: Any) -> Any:
    """Accept memories of other sessions in MemoryService.Read."""
    if call.streams_responses:
        request.session = call.state.get(request.memory, request.session)
        return call.forward(request)
    response = call.forward(request)
    call.state[response.memory] = request.session
    return response


@fault("NNHAL-11", on=("Session.Release",))
def released_object_usable(call: ProxyCall, request: Any) -> Any:
    """Ignore releases, so that released objects stay usable."""
    return session_pb2.ReleaseResponse()


@fault("NNHAL-12", on=("Session.Close",))
def closed_session_lives_on(call: ProxyCall, request: Any) -> Any:
    """Ignore Session.Close."""
    return session_pb2.CloseResponse()


@fault("NNHAL-13", on=("Session.Open",))
def session_never_taken_up_again(call: ProxyCall, request: Any) -> Any:
    """Open a new session instead of resuming one."""
    request.session = b""
    return call.forward(request)


@fault("NNHAL-43", on=("Session.Open",))
def redirect_that_the_client_does_not_accept(call: ProxyCall, request: session_pb2.OpenRequest) -> Any:
    """Redirect the clients that accept no redirect, and no others."""
    redirect = session_pb2.SessionEvent(redirect=session_pb2.SessionRedirect(address=":1"))
    return call.forward(request) if request.accept_redirect else iter([redirect])


@fault("NNHAL-43", on=("Session.Open",))
def resumed_session_not_found_by_redirects(call: ProxyCall, request: session_pb2.OpenRequest) -> Any:
    """Open a new session for clients that would follow a redirect to resume theirs."""
    if request.accept_redirect:
        request.session = b""
    return call.forward(request)


@fault("NNHAL-19", on=("MemoryService.Create",))
def digest_unchecked(call: ProxyCall, request: Any) -> Any:
    """Ignore the digest of an upload, and leave the memory writable."""
    request.sha256 = b""
    return call.forward(request)


@fault("NNHAL-20", on=("MemoryService.Create",))
def known_bytes_asked_for_again(call: ProxyCall, request: Any) -> Any:
    """Request the upload of bytes that the service already has."""
    response = call.forward(request)
    response.complete = False
    return response


@fault("NNHAL-21", on=("MemoryService.Upload",))
def writing_outside_a_memory_accepted(call: ProxyCall, request: Any) -> Any:
    """Report success for an upload out of bounds, and drop the data."""
    try:
        return call.forward(request)
    except grpc.RpcError:
        return memory_pb2.UploadResponse()


@fault("NNHAL-06", on=(ALL,))
def code_unknown(call: ProxyCall, request: Any) -> Any:
    """Report every error with gRPC code UNKNOWN and correct details."""

    def change(error: grpc.RpcError) -> Exception:
        detail = detail_of(error)
        return error if detail is None else InjectedError(grpc.StatusCode.UNKNOWN, detail)

    return replace_errors(call, request, change)


@fault("NNHAL-22", on=(ALL,))
def limit_not_named(call: ProxyCall, request: Any) -> Any:
    """Omit the name of the limit when a limit is exceeded."""

    def change(detail: Any) -> None:
        detail.limit = ""

    return replace_errors(call, request, edit_detail(change))


@fault("NNHAL-25", on=("Device.ListBackends",))
def unimplemented_without_a_reason(call: ProxyCall, request: Any) -> Any:
    """Fail an unimplemented call with code UNIMPLEMENTED and no details."""
    raise InjectedError(grpc.StatusCode.UNIMPLEMENTED)
