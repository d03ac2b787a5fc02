"""Support of operations by devices."""

from collections.abc import Sequence

from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.model.convert import to_hal_model
from nnhal_ndk.model.model import NdkModel


def supported_operations(model: NdkModel, devices: Sequence[NdkDevice]) -> list[bool]:
    """Return for each operation, as the program added them, whether one of the devices supports it.

    Raises:
        NdkError: BAD_STATE: the model is not finished.
        HalError: the model is invalid, or a device cannot be reached.
    """
    model.require_finished()
    hal_model = to_hal_model(model)
    answers = [device.hal.supported_operations(hal_model) for device in devices]
    result = [False] * len(model.order)
    for position, supported in zip(model.order, zip(*answers, strict=True), strict=True):
        result[position] = any(supported)
    return result
