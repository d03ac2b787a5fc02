"""Faults in buffers of the device."""

from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import buffer_pb2, device_pb2
from tools.conformance.selftest.fault import EXECUTE, executed, fault, forgiven, invalid_argument
from tools.conformance.selftest.proxy import Call

ALLOCATE, COPY_FROM, COPY_TO = "Device.Allocate", "Buffer.CopyFrom", "Buffer.CopyTo"
RELEASE = "Session.Release"

_INVALID, _FAILURE = ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE


@fault("MEMDOM-42", on=(COPY_TO,), select=())
def fresh_buffer_can_be_read(call: Call, request: Any) -> Any:
    """A buffer that was never written can be copied out of."""
    return forgiven(call, request, buffer_pb2.CopyToResponse(), _FAILURE)


@fault("EXTRA-09", on=(COPY_FROM, COPY_TO), select=())
def buffer_initialised_after_a_failure(call: Call, request: Any) -> Any:
    """A buffer that was written once stays initialised, also after a failed copy or execution."""
    if call.method == COPY_TO:
        was_written = request.buffer in call.kept
        return forgiven(call, request, buffer_pb2.CopyToResponse(), _FAILURE) if was_written else call.forward(request)
    response = call.forward(request)
    call.kept[request.buffer] = True
    return response


@fault("MEMDOM-55", "MEMDOM-57", "MEMDOM-53", on=(ALLOCATE, EXECUTE), select=())
def roles_not_checked(call: Call, request: Any) -> Any:
    """A buffer may be any input or output of any model."""
    if call.method == ALLOCATE:
        return _remembered(call, request)
    for is_output, arguments in ((False, request.request.inputs), (True, request.request.outputs)):
        for number, argument in enumerate(arguments):
            pool = request.request.pools[argument.location.pool_index]
            roles = call.kept.get(pool.token)
            if roles is not None and (request.prepared_model, is_output, number) not in roles:
                return executed()
    return call.forward(request)


def _remembered(call: Call, request: Any) -> Any:
    """An allocation as it is; the roles of its token are kept."""
    response = call.forward(request)
    call.kept[response.token] = {
        (request.prepared_models[role.model_index], is_output, role.io_index)
        for is_output, roles in ((False, request.input_roles), (True, request.output_roles))
        for role in roles
    }
    return response


@fault("EXTRA-10", on=(ALLOCATE, RELEASE, EXECUTE), select=())
def token_of_a_freed_buffer_accepted(call: Call, request: Any) -> Any:
    """The token of a buffer that was released can still be used."""
    if call.method == ALLOCATE:
        response = call.forward(request)
        call.kept[response.buffer] = response.token
        return response
    if call.method == RELEASE:
        call.kept.setdefault("freed", set()).update(call.kept.get(handle) for handle in request.handles)
        return call.forward(request)
    freed = call.kept.get("freed", set())
    is_freed = any(pool.token and pool.token in freed for pool in request.request.pools)
    return executed() if is_freed else call.forward(request)


@fault("EXTRA-10", on=(ALLOCATE,), select=())
def tokens_repeat(call: Call, request: Any) -> Any:
    """Every buffer has the token of the first."""
    response = call.forward(request)
    response.token = call.kept.setdefault("token", response.token)
    return response


@fault("MEMDOM-25", "GEN-28", on=(ALLOCATE,))
def token_of_zero(call: Call, request: Any) -> Any:
    """An allocation succeeds with token 0."""
    response = call.forward(request)
    response.token = 0
    return response


@fault("MEMDOM-17", "MEMDOM-21", "MEMDOM-13", on=(ALLOCATE,), select=())
def contradicting_roles_accepted(call: Call, request: Any) -> Any:
    """Roles need not agree with each other."""
    return forgiven(call, request, device_pb2.AllocateResponse(buffer=b"made up", token=1), _INVALID)


@fault("MEMDOM-26", "MEMDOM-31", "MEMDOM-40", on=(COPY_FROM,), select=())
def copy_of_any_size_accepted(call: Call, request: Any) -> Any:
    """Memory and shape of a copy into a buffer may be anything."""
    return forgiven(call, request, buffer_pb2.CopyFromResponse(), _INVALID)


@fault("GEN-18", "MEMDOM-45", on=(COPY_TO,))
def copy_out_writes_nothing(call: Call, request: Any) -> Any:
    """A copy out of a buffer succeeds, and its memory stays as it was."""
    if request.dst.mapped.memory:
        request.ClearField("dst")
        call.forward(request)
        return buffer_pb2.CopyToResponse()
    return call.forward(request)


@fault("MEMDOM-59", on=(EXECUTE,), select=())
def uninitialised_buffer_as_input(call: Call, request: Any) -> Any:
    """A buffer that was never written may be an input."""
    if not any(pool.WhichOneof("kind") == "token" for pool in request.request.pools):
        return call.forward(request)
    return forgiven(call, request, executed(), _FAILURE)


@fault("GEN-14", "MEMDOM-59", on=("PreparedModel.Execute*",))
def buffers_refused_by_executions(call: Call, request: Any) -> Any:
    """Buffers can be had, but no execution takes them."""
    if any(pool.WhichOneof("kind") == "token" for pool in request.request.pools):
        raise invalid_argument("buffers cannot be used yet")
    return call.forward(request)
