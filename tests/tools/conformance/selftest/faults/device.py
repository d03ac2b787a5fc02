"""Faults in the device's description of itself."""

from typing import Any

import grpc

from nnhal.types import ErrorStatus, OperandType
from nnhal.v1 import device_pb2, error_pb2
from tests.tools.conformance.selftest.fault import fault
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall

SUBGRAPH = 15


@fault("COM-01", on=("Device.ListDevices",))
def no_device_listed(call: ProxyCall, request: Any) -> Any:
    """List no device."""
    return device_pb2.ListDevicesResponse()


@fault("COM-02", on=("Device.GetInterfaceVersion",), select=("BASIC-*",))
def device_silent_after_a_while(call: ProxyCall, request: Any) -> Any:
    """Respond to two calls, then fail with UNAVAILABLE."""
    call.state["answers"] = call.state.get("answers", 0) + 1
    if call.state["answers"] > 2:
        raise InjectedError(grpc.StatusCode.UNAVAILABLE)
    return call.forward(request)


@fault("COM-03", on=("PreparedModel.GetInterfaceVersion",))
def model_of_an_older_version(call: ProxyCall, request: Any) -> Any:
    """Report another interface version and hash for a prepared model than for the device."""
    return device_pb2.GetInterfaceVersionResponse(version=3, hash="0" * 40)


@fault("COM-03", on=("Device.GetInterfaceVersion",))
def hash_of_another_interface(call: ProxyCall, request: Any) -> Any:
    """Report version 4 with a hash that is not the HAL's."""
    response = call.forward(request)
    response.hash = "0" * 40
    return response


@fault("BASIC-05", on=("Device.GetCapabilities",))
def performance_of_zero(call: ProxyCall, request: Any) -> Any:
    """Report an execution time of 0 for one operand type."""
    capabilities = call.forward(request)
    capabilities.operand_performance[-1].info.exec_time = 0
    return capabilities


@fault("BASIC-06", on=("Device.GetCapabilities",))
def performance_unsorted(call: ProxyCall, request: Any) -> Any:
    """List the performance of operand types in descending order."""
    capabilities = call.forward(request)
    falling = list(capabilities.operand_performance)[::-1]
    del capabilities.operand_performance[:]
    capabilities.operand_performance.extend(falling)
    return capabilities


@fault("BASIC-07", on=("Device.GetCapabilities",))
def performance_of_subgraphs(call: ProxyCall, request: Any) -> Any:
    """List SUBGRAPH among the performance of operand types."""
    capabilities = call.forward(request)
    capabilities.operand_performance.add(type=SUBGRAPH, info=capabilities.if_performance)
    return capabilities


@fault("BASIC-08", on=("Device.GetCapabilities",))
def performance_of_while_missing(call: ProxyCall, request: Any) -> Any:
    """Omit the performance of WHILE."""
    capabilities = call.forward(request)
    capabilities.ClearField("while_performance")
    return capabilities


@fault("BASIC-02", on=("Device.GetCapabilities",))
def capabilities_fail(call: ProxyCall, request: Any) -> Any:
    """Fail getCapabilities, because one of several backends reports a performance of zero."""
    failure: Any = ErrorStatus.GENERAL_FAILURE
    detail = error_pb2.ErrorDetail(status=failure, reason="division by zero")
    raise InjectedError(grpc.StatusCode.INTERNAL, detail)


@fault("NNHAL-41", on=("Device.GetCapabilities",))
def performance_of_a_supported_type_missing(call: ProxyCall, request: Any) -> Any:
    """Omit the performance of TENSOR_QUANT8_ASYMM, whose operations are supported."""
    capabilities = call.forward(request)
    entries = [entry for entry in capabilities.operand_performance if entry.type != OperandType.TENSOR_QUANT8_ASYMM]
    del capabilities.operand_performance[:]
    capabilities.operand_performance.extend(entries)
    return capabilities


@fault("EXTRA-08", on=("Device.GetSupportedExtensions",))
def extension_name_without_a_period(call: ProxyCall, request: Any) -> Any:
    """List an extension whose name is not that of a vendor's package."""
    response = call.forward(request)
    response.extensions.add(name="NoPeriod")
    return response


@fault("EXTRA-08", on=("Device.GetSupportedExtensions",))
def extension_listed_twice(call: ProxyCall, request: Any) -> Any:
    """List an extension twice."""
    response = call.forward(request)
    for _ in range(2):
        response.extensions.add(name="org.example.nnhal")
    return response


@fault("EXTRA-08", on=("Device.GetType",))
def type_zero(call: ProxyCall, request: Any) -> Any:
    """Report device type 0, which the HAL does not define."""
    return device_pb2.GetTypeResponse()


@fault("EXTRA-08", on=("Device.GetVersionString",))
def version_string_empty(call: ProxyCall, request: Any) -> Any:
    """Report an empty version string."""
    return device_pb2.GetVersionStringResponse()


@fault("NNHAL-24", on=("Device.*",))
def unknown_device_is_the_first(call: ProxyCall, request: Any) -> Any:
    """Treat every device name as the first device."""
    if hasattr(request, "device"):
        request.device = ""
    return call.forward(request)
