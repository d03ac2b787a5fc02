"""Faults in the buffers of the device (IBuffer)."""

from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import buffer_pb2, device_pb2
from nnhal_tools.conformance.device.calls import detail_of
from tests.tools.conformance.selftest.fault import EXECUTE, fake_result, fault, ignore_error, invalid_argument
from tests.tools.conformance.selftest.proxy import ProxyCall

ALLOCATE, COPY_FROM, COPY_TO = "Device.Allocate", "Buffer.CopyFrom", "Buffer.CopyTo"
RELEASE = "Session.Release"
SECOND_DEVICE = "second"
"""Name of a device that a fault invents; it is the first device under another name."""

_INVALID, _FAILURE = ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE


@fault("MEMDOM-42", on=(COPY_TO,), select=())
def fresh_buffer_can_be_read(call: ProxyCall, request: Any) -> Any:
    """Allow copyTo of a buffer that was never written."""
    return ignore_error(call, request, buffer_pb2.CopyToResponse(), _FAILURE)


@fault("EXTRA-09", on=(COPY_FROM, COPY_TO), select=())
def buffer_initialized_after_a_failure(call: ProxyCall, request: Any) -> Any:
    """Keep a buffer initialized after a failed copy or execution, if it was written before."""
    if call.method == COPY_TO:
        was_written = request.buffer in call.state
        return (
            ignore_error(call, request, buffer_pb2.CopyToResponse(), _FAILURE) if was_written else call.forward(request)
        )
    response = call.forward(request)
    call.state[request.buffer] = True
    return response


@fault("EXTRA-09", on=(COPY_FROM, COPY_TO, "PreparedModel.*"), select=())
def buffer_kept_after_a_refused_launch(call: ProxyCall, request: Any) -> Any:
    """Keep a buffer initialized after a launch that was refused as invalid."""
    if call.method == COPY_TO and call.state.get("refused"):
        return ignore_error(call, request, buffer_pb2.CopyToResponse(), _FAILURE)
    call.state["refused"] = False
    try:
        return call.forward(request)
    except grpc.RpcError as error:
        detail = detail_of(error)
        call.state["refused"] = detail is not None and int(detail.status) == _INVALID
        raise


@fault("MEMDOM-55", "MEMDOM-57", "MEMDOM-53", on=(ALLOCATE, EXECUTE), select=())
def roles_not_checked(call: ProxyCall, request: Any) -> Any:
    """Accept a buffer as any input or output of any model."""
    if call.method == ALLOCATE:
        return _remember_roles(call, request)
    for is_output, arguments in ((False, request.request.inputs), (True, request.request.outputs)):
        for number, argument in enumerate(arguments):
            pool = request.request.pools[argument.location.pool_index]
            roles = call.state.get(pool.token)
            if roles is not None and (request.prepared_model, is_output, number) not in roles:
                return fake_result()
    return call.forward(request)


def _remember_roles(call: ProxyCall, request: Any) -> Any:
    """Forward an allocation, and store the roles of its token."""
    response = call.forward(request)
    call.state[response.token] = {
        (request.prepared_models[role.model_index], is_output, role.io_index)
        for is_output, roles in ((False, request.input_roles), (True, request.output_roles))
        for role in roles
    }
    return response


@fault("EXTRA-10", on=(ALLOCATE, RELEASE, EXECUTE), select=())
def token_of_a_freed_buffer_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept the token of a released buffer."""
    if call.method == ALLOCATE:
        response = call.forward(request)
        call.state[response.buffer] = response.token
        return response
    if call.method == RELEASE:
        call.state.setdefault("freed", set()).update(call.state.get(handle) for handle in request.handles)
        return call.forward(request)
    freed = call.state.get("freed", set())
    is_freed = any(pool.token and pool.token in freed for pool in request.request.pools)
    return fake_result() if is_freed else call.forward(request)


@fault("EXTRA-10", on=(ALLOCATE,), select=())
def tokens_repeat(call: ProxyCall, request: Any) -> Any:
    """Give every buffer the token of the first."""
    response = call.forward(request)
    response.token = call.state.setdefault("token", response.token)
    return response


@fault("EXTRA-10", on=(ALLOCATE,), select=())
def tokens_numbered_by_session(call: ProxyCall, request: Any) -> Any:
    """Count the tokens of each session from 1."""
    response = call.forward(request)
    call.state[request.session] = response.token = call.state.get(request.session, 0) + 1
    return response


@fault("EXTRA-10", on=("Device.*",), select=())
def tokens_numbered_by_device(call: ProxyCall, request: Any) -> Any:
    """Offer a second device, and count the tokens of each device from 1."""
    if call.method == "Device.ListDevices":
        response = call.forward(request)
        response.devices.append(SECOND_DEVICE)
        return response
    name = request.device
    if name == SECOND_DEVICE:
        request.device = ""
    response = call.forward(request)
    if call.method == ALLOCATE:
        call.state[name] = response.token = call.state.get(name, 0) + 1
    return response


@fault("MEMDOM-25", "GEN-28", on=(ALLOCATE,))
def token_of_zero(call: ProxyCall, request: Any) -> Any:
    """Return token 0 for a successful allocation."""
    response = call.forward(request)
    response.token = 0
    return response


@fault("MEMDOM-17", "MEMDOM-21", "MEMDOM-13", on=(ALLOCATE,), select=())
def contradicting_roles_accepted(call: ProxyCall, request: Any) -> Any:
    """Allocate buffers for contradictory roles."""
    return ignore_error(call, request, device_pb2.AllocateResponse(buffer=b"made up", token=1), _INVALID)


@fault("MEMDOM-26", "MEMDOM-31", "MEMDOM-40", on=(COPY_FROM,), select=())
def copy_of_any_size_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept a copyFrom of any size and shape."""
    return ignore_error(call, request, buffer_pb2.CopyFromResponse(), _INVALID)


@fault("GEN-18", "MEMDOM-45", on=(COPY_TO,))
def copy_out_writes_nothing(call: ProxyCall, request: Any) -> Any:
    """Report success for copyTo, and leave the memory unchanged."""
    if request.dst.mapped.memory:
        request.ClearField("dst")
        call.forward(request)
        return buffer_pb2.CopyToResponse()
    return call.forward(request)


@fault("MEMDOM-59", on=(EXECUTE,), select=())
def uninitialized_buffer_as_input(call: ProxyCall, request: Any) -> Any:
    """Accept a buffer that was never written as an input."""
    if not any(pool.WhichOneof("kind") == "token" for pool in request.request.pools):
        return call.forward(request)
    return ignore_error(call, request, fake_result(), _FAILURE)


@fault("GEN-14", "MEMDOM-59", on=("PreparedModel.Execute*",))
def buffers_refused_by_executions(call: ProxyCall, request: Any) -> Any:
    """Allocate buffers, but reject them in every execution."""
    if any(pool.WhichOneof("kind") == "token" for pool in request.request.pools):
        raise invalid_argument("buffers are not supported")
    return call.forward(request)
