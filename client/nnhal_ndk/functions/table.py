"""Table of the functions of the C library: the Python function behind each of them."""

import struct
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

from nnhal.alignment import ALIGNMENT
from nnhal.types import ExtensionParams, is_extension
from nnhal_ndk.devices import NdkDevice, all_devices, device_at
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.event import NdkEvent, SyncFenceEvent
from nnhal_ndk.execution.execution import NdkBurst, NdkExecution
from nnhal_ndk.execution.memory import NdkMemory, copy_memory, map_descriptor
from nnhal_ndk.execution.memory_desc import NdkMemoryDesc, allocate_memory
from nnhal_ndk.extensions import PREFIXES, supports_extension
from nnhal_ndk.model.convert import to_hal_model, without_operations
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.objects import OBJECTS
from nnhal_ndk.results import NdkError, bad_data, op_failed, unexpected_null

# ---- Arrays of handles ------------------------------------------------------------------------------------------


def _handles(data: bytes | None) -> tuple[int, ...]:
    handles = struct.unpack(f"{len(data) // 8}Q", data) if data else ()
    if 0 in handles:
        raise unexpected_null(f"element {handles.index(0)} is NULL")
    return handles


def _devices(data: bytes) -> list[NdkDevice]:
    handles = _handles(data)
    if not handles or len(set(handles)) != len(handles):
        raise bad_data("a list of devices has at least one, and each only once")
    return [OBJECTS.get(handle, NdkDevice) for handle in handles]


# ---- Models -----------------------------------------------------------------------------------------------------


def _set_value_from_memory(model: NdkModel, index: int, memory: NdkMemory, offset: int, length: int) -> None:
    model.require_open()
    model.set_value_from_memory(index, memory.mapped, offset, length)


def _set_extension_data(model: NdkModel, index: int, data: memoryview | None) -> None:
    model.require_open()
    if not is_extension(model.operand(index).type):
        raise bad_data(f"operand {index} has no type of an extension")
    model.change_operand(index, extra_params=None if data is None else ExtensionParams(bytes(data)))


def _supported_operations(model: NdkModel, devices: bytes) -> bytes:
    """Return for each operation, as the program added them, whether one of the devices supports it."""
    if devices:  # Android checks the number of devices before the state of the model, and the devices after it
        model.require_finished()
    listed = _devices(devices)
    refused = model.invalid_scales
    kept = [position for number, position in enumerate(model.order) if number not in refused]
    hal_model = without_operations(to_hal_model(model), refused)
    answers = [device.hal.supported_operations(hal_model) for device in listed] if kept else []
    result = bytearray(len(model.order))
    for position, supported in zip(kept, zip(*answers, strict=True), strict=True):
        result[position] = any(supported)
    return bytes(result)


def _extension_type(_: NdkModel, extension: bytes, code: int) -> int:
    return PREFIXES.type_of(extension, code)


# ---- Compilations and memories ----------------------------------------------------------------------------------


def _create_for_devices(model: NdkModel, devices: bytes) -> NdkCompilation:
    return NdkCompilation(model, _devices(devices))


def _preferred(compilation: NdkCompilation, index: int, *, value: int, is_output: bool) -> int:
    """Return a preferred alignment or padding in bytes: the same one for all values of all devices."""
    _ = compilation.plan
    compilation.operand(index, is_output=is_output)
    return value


def _add_attribute(
    target: NdkCompilation | NdkExecution, extension: bytes, code: int, _data: memoryview | None
) -> None:
    target.add_attribute(PREFIXES.type_of(extension, code))


def _map_memory(size: int, protection: int, descriptor: int, offset: int) -> NdkMemory:
    return NdkMemory(map_descriptor(size, protection, descriptor, offset))


def _refuse_hardware_buffer(buffer: int) -> NdkMemory:
    raise op_failed(f"{buffer:#x}: hardware buffers exist on Android only")


# ---- Executions -------------------------------------------------------------------------------------------------


def _free_execution(execution: int) -> None:
    # Android ignores the call too during a computation; the event is to be waited for first
    if not OBJECTS.get(execution, NdkExecution).is_computing:
        OBJECTS.remove(execution, NdkExecution)


def _start_with_dependencies(execution: NdkExecution, dependencies: bytes | None, duration_ns: int) -> NdkEvent:
    return execution.start_after([OBJECTS.get(handle, NdkEvent) for handle in _handles(dependencies)], duration_ns)


def _output_dimensions(execution: NdkExecution, index: int, convert: Callable[[tuple[int, ...]], Any]) -> Any:
    try:
        return convert(execution.output_dimensions(index))
    except NdkError as error:
        raise NdkError(error.code, error.reason, (convert(error.values),) if error.values else ()) from None


def _get_output_dimensions(execution: NdkExecution, index: int) -> bytes:
    dimensions: bytes = _output_dimensions(execution, index, lambda numbers: struct.pack(f"{len(numbers)}I", *numbers))
    if not dimensions:
        raise bad_data(f"output {index} is a scalar")
    return dimensions


# ---- All functions ----------------------------------------------------------------------------------------------

TABLE: Mapping[str, Callable[..., Any]] = {
    "ANeuralNetworks_getDeviceCount": lambda: len(all_devices()),
    "ANeuralNetworks_getDevice": device_at,
    "ANeuralNetworksDevice_getName": attrgetter("name"),
    "ANeuralNetworksDevice_getType": attrgetter("type"),
    "ANeuralNetworksDevice_getVersion": attrgetter("version"),
    "ANeuralNetworksDevice_getFeatureLevel": attrgetter("feature_level"),
    "ANeuralNetworksDevice_getExtensionSupport": supports_extension,
    "ANeuralNetworksDevice_wait": attrgetter("hal"),
    "ANeuralNetworksMemory_createFromFd": _map_memory,
    "ANeuralNetworksMemory_createFromAHardwareBuffer": _refuse_hardware_buffer,
    "ANeuralNetworksMemory_createFromDesc": lambda desc: NdkMemory(allocate_memory(desc)),
    "ANeuralNetworksMemory_copy": copy_memory,
    "ANeuralNetworksMemory_free": partial(OBJECTS.remove, kind=NdkMemory),
    "ANeuralNetworksMemoryDesc_create": NdkMemoryDesc,
    "ANeuralNetworksMemoryDesc_free": partial(OBJECTS.remove, kind=NdkMemoryDesc),
    "ANeuralNetworksMemoryDesc_addInputRole": partial(NdkMemoryDesc.add_role, is_output=False),
    "ANeuralNetworksMemoryDesc_addOutputRole": partial(NdkMemoryDesc.add_role, is_output=True),
    "ANeuralNetworksMemoryDesc_setDimensions": NdkMemoryDesc.set_dimensions,
    "ANeuralNetworksMemoryDesc_finish": NdkMemoryDesc.finish,
    "ANeuralNetworksModel_create": NdkModel,
    "ANeuralNetworksModel_free": partial(OBJECTS.remove, kind=NdkModel),
    "ANeuralNetworksModel_finish": NdkModel.finish,
    "ANeuralNetworksModel_addOperand": NdkModel.add_operand,
    "ANeuralNetworksModel_setOperandValue": NdkModel.set_value,
    "ANeuralNetworksModel_setOperandSymmPerChannelQuantParams": NdkModel.set_channel_quantization,
    "ANeuralNetworksModel_setOperandValueFromMemory": _set_value_from_memory,
    "ANeuralNetworksModel_setOperandValueFromModel": NdkModel.set_value_from_model,
    "ANeuralNetworksModel_setOperandExtensionData": _set_extension_data,
    "ANeuralNetworksModel_addOperation": NdkModel.add_operation,
    "ANeuralNetworksModel_identifyInputsAndOutputs": NdkModel.identify,
    "ANeuralNetworksModel_relaxComputationFloat32toFloat16": NdkModel.relax,
    "ANeuralNetworksModel_getSupportedOperationsForDevices": _supported_operations,
    "ANeuralNetworksModel_getExtensionOperandType": _extension_type,
    "ANeuralNetworksModel_getExtensionOperationType": _extension_type,
    "ANeuralNetworksCompilation_create": NdkCompilation,
    "ANeuralNetworksCompilation_createForDevices": _create_for_devices,
    "ANeuralNetworksCompilation_free": partial(OBJECTS.remove, kind=NdkCompilation),
    "ANeuralNetworksCompilation_setPreference": NdkCompilation.set_preference,
    "ANeuralNetworksCompilation_setCaching": NdkCompilation.set_caching,
    "ANeuralNetworksCompilation_setPriority": NdkCompilation.set_priority,
    "ANeuralNetworksCompilation_setTimeout": NdkCompilation.set_timeout,
    "ANeuralNetworksCompilation_finish": NdkCompilation.finish,
    "ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput": partial(
        _preferred, value=ALIGNMENT, is_output=False
    ),
    "ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput": partial(_preferred, value=1, is_output=False),
    "ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput": partial(
        _preferred, value=ALIGNMENT, is_output=True
    ),
    "ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput": partial(_preferred, value=1, is_output=True),
    "ANeuralNetworksCompilation_addExtensionAttribute": _add_attribute,
    "ANeuralNetworksBurst_create": NdkBurst,
    "ANeuralNetworksBurst_free": lambda burst: OBJECTS.remove(burst, NdkBurst).close(),
    "ANeuralNetworksExecution_create": NdkExecution,
    "ANeuralNetworksExecution_free": _free_execution,
    "ANeuralNetworksExecution_setInput": partial(NdkExecution.set_buffer, is_output=False),
    "ANeuralNetworksExecution_setInputFromMemory": partial(NdkExecution.set_memory, is_output=False),
    "ANeuralNetworksExecution_setOutput": partial(NdkExecution.set_buffer, is_output=True),
    "ANeuralNetworksExecution_setOutputFromMemory": partial(NdkExecution.set_memory, is_output=True),
    "ANeuralNetworksExecution_setMeasureTiming": NdkExecution.set_measure_timing,
    "ANeuralNetworksExecution_setTimeout": NdkExecution.set_timeout,
    "ANeuralNetworksExecution_setLoopTimeout": NdkExecution.set_loop_timeout,
    "ANeuralNetworksExecution_setReusable": NdkExecution.set_reusable,
    "ANeuralNetworksExecution_enableInputAndOutputPadding": NdkExecution.enable_padding,
    "ANeuralNetworksExecution_addExtensionAttribute": _add_attribute,
    "ANeuralNetworksExecution_compute": NdkExecution.compute,
    "ANeuralNetworksExecution_burstCompute": NdkExecution.compute_in_burst,
    "ANeuralNetworksExecution_startCompute": NdkExecution.start,
    "ANeuralNetworksExecution_startComputeWithDependencies": _start_with_dependencies,
    "ANeuralNetworksExecution_getOutputOperandRank": partial(_output_dimensions, convert=len),
    "ANeuralNetworksExecution_getOutputOperandDimensions": _get_output_dimensions,
    "ANeuralNetworksExecution_getDuration": NdkExecution.duration_ns,
    "ANeuralNetworksEvent_createFromSyncFenceFd": SyncFenceEvent,
    "ANeuralNetworksEvent_getSyncFenceFd": NdkEvent.duplicate_descriptor,
    "ANeuralNetworksEvent_wait": NdkEvent.wait,
    "ANeuralNetworksEvent_free": lambda event: OBJECTS.remove(event, NdkEvent).close(),
}
"""Functions by the names of the C functions, in the order of the header; see `register.callables`."""
