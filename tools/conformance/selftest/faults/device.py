"""Faults in what a device says of itself."""

from typing import Any

import grpc

from nnhal.v1 import device_pb2
from tools.conformance.selftest.fault import fault
from tools.conformance.selftest.proxy import Call, Refusal

SUBGRAPH = 15


@fault("COM-01", on=("Device.ListDevices",))
def no_device_listed(call: Call, request: Any) -> Any:
    """The server answers, but lists no device."""
    return device_pb2.ListDevicesResponse()


@fault("COM-02", on=("Device.GetInterfaceVersion",), select=("BASIC-*",))
def device_silent_after_a_while(call: Call, request: Any) -> Any:
    """The device answers twice, then no more."""
    call.kept["answers"] = call.kept.get("answers", 0) + 1
    if call.kept["answers"] > 2:
        raise Refusal(grpc.StatusCode.UNAVAILABLE)
    return call.forward(request)


@fault("COM-03", on=("PreparedModel.GetInterfaceVersion",))
def model_of_an_older_version(call: Call, request: Any) -> Any:
    """A prepared model says another interface version and hash than its device."""
    return device_pb2.GetInterfaceVersionResponse(version=3, hash="0" * 40)


@fault("COM-03", on=("Device.GetInterfaceVersion",))
def hash_of_another_interface(call: Call, request: Any) -> Any:
    """The device says version 4 with a hash that is not the HAL's."""
    response = call.forward(request)
    response.hash = "0" * 40
    return response


@fault("BASIC-05", on=("Device.GetCapabilities",))
def performance_of_zero(call: Call, request: Any) -> Any:
    """One operand type has an execution time of 0."""
    capabilities = call.forward(request)
    capabilities.operand_performance[-1].info.exec_time = 0
    return capabilities


@fault("BASIC-06", on=("Device.GetCapabilities",))
def performance_unsorted(call: Call, request: Any) -> Any:
    """The performances of operand types come in falling order."""
    capabilities = call.forward(request)
    falling = list(capabilities.operand_performance)[::-1]
    del capabilities.operand_performance[:]
    capabilities.operand_performance.extend(falling)
    return capabilities


@fault("BASIC-07", on=("Device.GetCapabilities",))
def performance_of_subgraphs(call: Call, request: Any) -> Any:
    """SUBGRAPH is among the operand types that have a performance."""
    capabilities = call.forward(request)
    capabilities.operand_performance.add(type=SUBGRAPH, info=capabilities.if_performance)
    return capabilities


@fault("BASIC-08", on=("Device.GetCapabilities",))
def performance_of_while_missing(call: Call, request: Any) -> Any:
    """Nothing is said of WHILE."""
    capabilities = call.forward(request)
    capabilities.ClearField("while_performance")
    return capabilities


@fault("EXTRA-08", on=("Device.GetType",))
def type_zero(call: Call, request: Any) -> Any:
    """The device's type is 0, which the HAL does not have."""
    return device_pb2.GetTypeResponse()


@fault("EXTRA-08", on=("Device.GetVersionString",))
def version_string_empty(call: Call, request: Any) -> Any:
    """The version string is empty."""
    return device_pb2.GetVersionStringResponse()


@fault("NNHAL-24", on=("Device.*",))
def unknown_device_is_the_first(call: Call, request: Any) -> Any:
    """Whatever device a call names, the first answers."""
    if hasattr(request, "device"):
        request.device = ""
    return call.forward(request)
