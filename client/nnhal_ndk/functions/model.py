"""Functions of models."""

from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.execution.memory import NdkMemory
from nnhal_ndk.execution.support import supported_operations
from nnhal_ndk.functions.handles import device_handles
from nnhal_ndk.functions.register import ndk_function
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.model.operand_type import GivenType, unpack_uint32s
from nnhal_ndk.objects import OBJECTS


def _model(handle: int) -> NdkModel:
    return OBJECTS.get(handle, NdkModel)


@ndk_function("ANeuralNetworksModel_create")
def _create() -> tuple[int]:
    return (OBJECTS.add(NdkModel()),)


@ndk_function("ANeuralNetworksModel_free")
def _free(model: int) -> None:
    OBJECTS.remove(model, NdkModel)


@ndk_function("ANeuralNetworksModel_finish")
def _finish(model: int) -> None:
    _model(model).finish()


@ndk_function("ANeuralNetworksModel_addOperand")
def _add_operand(model: int, type_: int, dimensions: bytes, scale: float, zero_point: int) -> None:
    _model(model).add_operand(GivenType(type_, unpack_uint32s(dimensions), scale, zero_point))


@ndk_function("ANeuralNetworksModel_setOperandValue")
def _set_operand_value(model: int, index: int, buffer: memoryview | None) -> None:
    _model(model).set_value(index, buffer)


@ndk_function("ANeuralNetworksModel_setOperandSymmPerChannelQuantParams")
def _set_channel_quantization(model: int, index: int, channel_dim: int, count: int, scales: memoryview | None) -> None:
    _model(model).set_channel_quantization(index, channel_dim, count, scales)


@ndk_function("ANeuralNetworksModel_setOperandValueFromMemory")
def _set_value_from_memory(model: int, index: int, memory: int, offset: int, length: int) -> None:
    target, source = _model(model), OBJECTS.get(memory, NdkMemory)
    target.require_open()
    target.set_value_from_memory(index, source.mapped, offset, length)


@ndk_function("ANeuralNetworksModel_setOperandValueFromModel")
def _set_value_from_model(model: int, index: int, value: int) -> None:
    _model(model).set_value_from_model(index, _model(value))


@ndk_function("ANeuralNetworksModel_addOperation")
def _add_operation(model: int, type_: int, inputs: bytes, outputs: bytes) -> None:
    _model(model).add_operation(type_, unpack_uint32s(inputs), unpack_uint32s(outputs))


@ndk_function("ANeuralNetworksModel_identifyInputsAndOutputs")
def _identify(model: int, inputs: bytes, outputs: bytes) -> None:
    _model(model).identify(unpack_uint32s(inputs), unpack_uint32s(outputs))


@ndk_function("ANeuralNetworksModel_relaxComputationFloat32toFloat16")
def _relax(model: int, allow: int) -> None:
    _model(model).relax(bool(allow))


@ndk_function("ANeuralNetworksModel_getSupportedOperationsForDevices")
def _get_supported_operations(model: int, devices: bytes) -> tuple[bytes]:
    asked = _model(model)
    if devices:  # Android checks the number of devices before the state of the model, and the devices after it
        asked.require_finished()
    listed = [OBJECTS.get(handle, NdkDevice) for handle in device_handles(devices)]
    supported = supported_operations(asked, listed)
    return (bytes(supported),)
