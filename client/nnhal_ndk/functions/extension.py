"""Functions for vendor extensions."""

from nnhal.types import ExtensionParams, is_extension
from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.execution import NdkExecution
from nnhal_ndk.extensions import PREFIXES, supports_extension
from nnhal_ndk.functions.register import ndk_function
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.objects import OBJECTS
from nnhal_ndk.results import bad_data


@ndk_function("ANeuralNetworksDevice_getExtensionSupport")
def _get_support(device: int, extension: bytes) -> tuple[bool]:
    return (supports_extension(OBJECTS.get(device, NdkDevice), extension),)


@ndk_function("ANeuralNetworksModel_getExtensionOperandType")
def _get_operand_type(model: int, extension: bytes, code: int) -> tuple[int]:
    OBJECTS.get(model, NdkModel)
    return (PREFIXES.type_of(extension, code),)


@ndk_function("ANeuralNetworksModel_getExtensionOperationType")
def _get_operation_type(model: int, extension: bytes, code: int) -> tuple[int]:
    OBJECTS.get(model, NdkModel)
    return (PREFIXES.type_of(extension, code),)


@ndk_function("ANeuralNetworksModel_setOperandExtensionData")
def _set_operand_data(model: int, index: int, data: memoryview | None) -> None:
    changed = OBJECTS.get(model, NdkModel)
    changed.require_open()
    operand = changed.operand(index)
    if not is_extension(operand.type):
        raise bad_data(f"operand {index} has no type of an extension")
    operand.extra_params = None if data is None else ExtensionParams(bytes(data))


@ndk_function("ANeuralNetworksCompilation_addExtensionAttribute")
def _add_compilation_attribute(compilation: int, extension: bytes, code: int, _data: memoryview | None) -> None:
    OBJECTS.get(compilation, NdkCompilation).add_attribute(PREFIXES.type_of(extension, code))


@ndk_function("ANeuralNetworksExecution_addExtensionAttribute")
def _add_execution_attribute(execution: int, extension: bytes, code: int, _data: memoryview | None) -> None:
    OBJECTS.get(execution, NdkExecution).add_attribute(PREFIXES.type_of(extension, code))
