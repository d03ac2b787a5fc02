"""Assignment of operations to devices, by the performance that these state."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnhal.errors import HalError
from nnhal.types import Capabilities, ExecutionPreference, Model, OperandType, Operation, OperationType, PerformanceInfo
from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.results import bad_data

_log = logging.getLogger("nnhal.ndk")

_CPU = PerformanceInfo(1.0, 1.0)
"""Performance of the reference implementation, to which that of other devices is relative."""
_UNKNOWN = PerformanceInfo(math.inf, math.inf)


@dataclass(frozen=True)
class Assignment:
    """Operations of main and their devices.

    Attributes:
        devices: for each operation, the number of its device.
        supported: for each device, whether it supports each operation.
    """

    devices: tuple[int, ...]
    supported: tuple[Sequence[bool], ...]

    def supports(self, device: int, operation: int) -> bool:
        """Return whether a device supports an operation."""
        return self.supported[device][operation]


def assign(model: Model, devices: Sequence[NdkDevice], preference: int, reference: NdkDevice | None) -> Assignment:
    """Assign each operation to the fastest device that supports it, or to the most economical one for LOW_POWER.

    A device that cannot tell what it supports gets no operation. `reference`, if it is not None, takes operations that
    no other device supports, with the number after theirs.

    Raises:
        NdkError: BAD_DATA: no device supports some operation.
        HalError: the devices that might support it fail.
    """
    operations = model.main.operations
    supported: list[Sequence[bool]] = []
    failure: HalError | None = None
    for device in devices:
        try:
            supported.append(device.hal.supported_operations(model))
        except HalError as error:
            _log.warning("device %s gets no operation: %s", device.name.decode(), error)
            failure = failure or error
            supported.append([False] * len(operations))
    if reference is not None:
        supported.append([True] * len(operations))
    chosen = []
    for i, operation in enumerate(operations):
        candidates = [number for number in range(len(devices)) if supported[number][i]]
        if not candidates and reference is None:
            raise failure or bad_data(f"no device supports operation {i}")
        costs = {number: _cost(devices[number], model, operation, preference) for number in candidates}
        chosen.append(min(costs, key=lambda number: costs[number], default=len(devices)))
    return Assignment(tuple(chosen), tuple(supported))


def _cost(device: NdkDevice, model: Model, operation: Operation, preference: int) -> tuple[float, bool]:
    """Return what an operation costs on a device. The reference implementation wins a tie."""
    info = _CPU if device.is_reference else _performance(device.hal.capabilities, model, operation)
    value = info.power_usage if preference == ExecutionPreference.LOW_POWER else info.exec_time
    return value, not device.is_reference


def _performance(capabilities: Capabilities, model: Model, operation: Operation) -> PerformanceInfo:
    """Return the performance of a device on an operation, which the type of its first operand determines."""
    match operation.type:
        case OperationType.IF:
            return capabilities.if_performance
        case OperationType.WHILE:
            return capabilities.while_performance
    type_ = model.main.operands[operation.inputs[0]].type
    if model.relax_computation_float32_to_float16:
        if type_ == OperandType.FLOAT32:
            return capabilities.relaxed_float32_to_float16_performance_scalar
        if type_ == OperandType.TENSOR_FLOAT32:
            return capabilities.relaxed_float32_to_float16_performance_tensor
    return next((each.info for each in capabilities.operand_performance if each.type == type_), _UNKNOWN)
