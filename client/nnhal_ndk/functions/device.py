"""Functions of devices."""

from nnhal_ndk.devices import NdkDevice, all_devices, device_at
from nnhal_ndk.functions.register import ndk_function
from nnhal_ndk.objects import OBJECTS


@ndk_function("ANeuralNetworks_getDeviceCount")
def _get_device_count() -> tuple[int]:
    return (len(all_devices()),)


@ndk_function("ANeuralNetworks_getDevice")
def _get_device(index: int) -> tuple[int]:
    return (device_at(index).handle,)


@ndk_function("ANeuralNetworksDevice_getName")
def _get_name(device: int) -> tuple[bytes]:
    return (OBJECTS.get(device, NdkDevice).name,)


@ndk_function("ANeuralNetworksDevice_getType")
def _get_type(device: int) -> tuple[int]:
    return (OBJECTS.get(device, NdkDevice).type,)


@ndk_function("ANeuralNetworksDevice_getVersion")
def _get_version(device: int) -> tuple[bytes]:
    return (OBJECTS.get(device, NdkDevice).version,)


@ndk_function("ANeuralNetworksDevice_getFeatureLevel")
def _get_feature_level(device: int) -> tuple[int]:
    return (OBJECTS.get(device, NdkDevice).feature_level,)


@ndk_function("ANeuralNetworksDevice_wait")
def _wait(device: int) -> None:
    _ = OBJECTS.get(device, NdkDevice).hal
