"""Functions of memories and their descriptions."""

from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.memory import NdkMemory, copy_memory, map_descriptor
from nnhal_ndk.execution.memory_desc import NdkMemoryDesc, allocate_memory
from nnhal_ndk.functions.register import ndk_function
from nnhal_ndk.model.operand_type import unpack_uint32s
from nnhal_ndk.objects import OBJECTS
from nnhal_ndk.results import op_failed


def _desc(handle: int) -> NdkMemoryDesc:
    return OBJECTS.get(handle, NdkMemoryDesc)


@ndk_function("ANeuralNetworksMemory_createFromFd")
def _create_from_fd(size: int, protection: int, descriptor: int, offset: int) -> tuple[int]:
    return (OBJECTS.add(NdkMemory(map_descriptor(size, protection, descriptor, offset))),)


@ndk_function("ANeuralNetworksMemory_createFromAHardwareBuffer")
def _create_from_hardware_buffer(buffer: int) -> tuple[int]:
    raise op_failed(f"{buffer:#x}: hardware buffers exist on Android only")


@ndk_function("ANeuralNetworksMemory_createFromDesc")
def _create_from_desc(desc: int) -> tuple[int]:
    return (OBJECTS.add(NdkMemory(allocate_memory(_desc(desc)))),)


@ndk_function("ANeuralNetworksMemory_copy")
def _copy(source: int, target: int) -> None:
    copy_memory(OBJECTS.get(source, NdkMemory), OBJECTS.get(target, NdkMemory))


@ndk_function("ANeuralNetworksMemory_free")
def _free(memory: int) -> None:
    OBJECTS.remove(memory, NdkMemory)


@ndk_function("ANeuralNetworksMemoryDesc_create")
def _create_desc() -> tuple[int]:
    return (OBJECTS.add(NdkMemoryDesc()),)


@ndk_function("ANeuralNetworksMemoryDesc_free")
def _free_desc(desc: int) -> None:
    OBJECTS.remove(desc, NdkMemoryDesc)


@ndk_function("ANeuralNetworksMemoryDesc_addInputRole")
def _add_input_role(desc: int, compilation: int, index: int, frequency: float) -> None:
    _desc(desc).add_role(OBJECTS.get(compilation, NdkCompilation), index, frequency, is_output=False)


@ndk_function("ANeuralNetworksMemoryDesc_addOutputRole")
def _add_output_role(desc: int, compilation: int, index: int, frequency: float) -> None:
    _desc(desc).add_role(OBJECTS.get(compilation, NdkCompilation), index, frequency, is_output=True)


@ndk_function("ANeuralNetworksMemoryDesc_setDimensions")
def _set_dimensions(desc: int, dimensions: bytes | None) -> None:
    _desc(desc).set_dimensions(unpack_uint32s(dimensions or b""))


@ndk_function("ANeuralNetworksMemoryDesc_finish")
def _finish_desc(desc: int) -> None:
    _desc(desc).finish()
