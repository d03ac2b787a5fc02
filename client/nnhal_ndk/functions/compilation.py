"""Functions of compilations and bursts."""

from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.execution import NdkBurst
from nnhal_ndk.functions.handles import device_handles
from nnhal_ndk.functions.register import ndk_function
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.objects import OBJECTS


def _compilation(handle: int) -> NdkCompilation:
    return OBJECTS.get(handle, NdkCompilation)


@ndk_function("ANeuralNetworksCompilation_create")
def _create(model: int) -> tuple[int]:
    return (OBJECTS.add(NdkCompilation(OBJECTS.get(model, NdkModel))),)


@ndk_function("ANeuralNetworksCompilation_createForDevices")
def _create_for_devices(model: int, devices: bytes) -> tuple[int]:
    listed = [OBJECTS.get(handle, NdkDevice) for handle in device_handles(devices)]
    return (OBJECTS.add(NdkCompilation(OBJECTS.get(model, NdkModel), listed)),)


@ndk_function("ANeuralNetworksCompilation_free")
def _free(compilation: int) -> None:
    OBJECTS.remove(compilation, NdkCompilation)


@ndk_function("ANeuralNetworksCompilation_setPreference")
def _set_preference(compilation: int, preference: int) -> None:
    _compilation(compilation).set_preference(preference)


@ndk_function("ANeuralNetworksCompilation_setCaching")
def _set_caching(compilation: int, folder: bytes, token: bytes) -> None:
    _compilation(compilation).set_caching(folder, token)


@ndk_function("ANeuralNetworksCompilation_setPriority")
def _set_priority(compilation: int, priority: int) -> None:
    _compilation(compilation).set_priority(priority)


@ndk_function("ANeuralNetworksCompilation_setTimeout")
def _set_timeout(compilation: int, duration_ns: int) -> None:
    _compilation(compilation).set_timeout(duration_ns)


@ndk_function("ANeuralNetworksCompilation_finish")
def _finish(compilation: int) -> None:
    _compilation(compilation).finish()


@ndk_function("ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput")
def _get_input_alignment(compilation: int, index: int) -> tuple[int]:
    return (_compilation(compilation).preferred_alignment(index, is_output=False),)


@ndk_function("ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput")
def _get_input_padding(compilation: int, index: int) -> tuple[int]:
    return (_compilation(compilation).preferred_padding(index, is_output=False),)


@ndk_function("ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput")
def _get_output_alignment(compilation: int, index: int) -> tuple[int]:
    return (_compilation(compilation).preferred_alignment(index, is_output=True),)


@ndk_function("ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput")
def _get_output_padding(compilation: int, index: int) -> tuple[int]:
    return (_compilation(compilation).preferred_padding(index, is_output=True),)


@ndk_function("ANeuralNetworksBurst_create")
def _create_burst(compilation: int) -> tuple[int]:
    return (OBJECTS.add(NdkBurst(_compilation(compilation))),)


@ndk_function("ANeuralNetworksBurst_free")
def _free_burst(burst: int) -> None:
    OBJECTS.remove(burst, NdkBurst).close()
