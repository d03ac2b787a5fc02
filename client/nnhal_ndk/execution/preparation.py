"""Preparation of models: on one device, divided among several, or on the CPU where the API prescribes it."""

import hashlib
import logging
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnhal.client.fallback.division import divide_among
from nnhal.errors import MISSED_DEADLINE, HalError
from nnhal.types import ErrorStatus, ExecutionPreference, Model, Priority
from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.execution.assignment import Assignment, assign
from nnhal_ndk.execution.fallback_plan import FallbackPlan
from nnhal_ndk.execution.partitioned_plan import PartitionedPlan
from nnhal_ndk.execution.plan import CompiledPlan, SingleDevicePlan
from nnhal_ndk.results import bad_data

_log = logging.getLogger("nnhal.ndk")


@dataclass(frozen=True)
class CompilationOptions:
    """Options of a compilation.

    Attributes:
        deadline_s: seconds from now, or None.
        cache: folder of the compilation cache and token of the model; None for no cache.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    deadline_s: float | None = None
    cache: tuple[bytes, bytes] | None = None

    def prepare(self, device: NdkDevice, model: Model, operations: Sequence[int]) -> SingleDevicePlan:
        """Prepare a model on a device. `operations` are those of the whole model that it consists of.

        Raises:
            HalError: the preparation failed.
        """
        options: dict[str, Any] = {
            "preference": self.preference,
            "priority": self.priority,
            "deadline": self.deadline_s,
        }
        if self.cache is None:
            return SingleDevicePlan(device, device.hal.prepare(model, **options).result())
        folder, token = self.cache
        numbers = struct.pack(f"<2B{len(operations)}I", self.preference, self.priority, *operations)
        part = hashlib.sha256(b"\0".join((token, device.name, device.version, numbers))).digest()
        return SingleDevicePlan(device, device.hal.prepare_with_files(model, os.fsdecode(folder), part, **options))


def prepare_for(devices: Sequence[NdkDevice], model: Model, options: CompilationOptions) -> CompiledPlan:
    """Prepare a model for devices that the program has chosen: on one of them, or divided among them.

    Raises:
        NdkError: BAD_DATA: none of the devices supports some operation.
        HalError: the preparation failed.
    """
    every = range(len(model.main.operations))
    if len(devices) == 1:
        try:
            return options.prepare(devices[0], model, every)
        except HalError as error:
            if error.status not in (*MISSED_DEADLINE, ErrorStatus.INVALID_ARGUMENT):
                assign(model, devices, options.preference, None)
            raise
    assignment = assign(model, devices, options.preference, None)
    try:
        return _prepare_assigned(devices, model, options, assignment)
    except HalError as error:
        used = set(assignment.devices)
        versatile = [device for device, supported in enumerate(assignment.supported) if all(supported)]
        if len(used) == 1 or not versatile:
            raise
        _log.warning("the model is not divided among devices: %s", error)
        return options.prepare(devices[versatile[0]], model, every)


def prepare_with_fallback(
    devices: Sequence[NdkDevice], reference: NdkDevice, model: Model, options: CompilationOptions
) -> CompiledPlan:
    """Prepare a model for all devices. The CPU runs what no device supports, and everything if a device fails.

    `reference` is the reference implementation, which `devices` do not include.

    Raises:
        NdkError: BAD_DATA: the model is invalid.
        HalError: the preparation on the CPU failed.
    """
    every = range(len(model.main.operations))
    try:
        plan = _prepare_on_all(devices, reference, model, options)
    except HalError as error:
        _log.warning("%s runs the whole model: %s", reference.name.decode(), error)
        return options.prepare(reference, model, every)
    if plan.single is not None and plan.single.device is reference:
        return plan
    return FallbackPlan(plan, lambda: options.prepare(reference, model, every))


def _prepare_on_all(
    devices: Sequence[NdkDevice], reference: NdkDevice, model: Model, options: CompilationOptions
) -> CompiledPlan:
    every = range(len(model.main.operations))
    failure: HalError | None = None
    if len(devices) == 1:  # the usual case, in which the device is asked about single operations only if it fails
        try:
            return options.prepare(devices[0], model, every)
        except HalError as error:
            if error.status == ErrorStatus.INVALID_ARGUMENT:
                raise bad_data(error.reason) from error
            failure = error
    assignment = assign(model, devices, options.preference, reference)
    if failure is not None and set(assignment.devices) == {0}:
        raise failure
    return _prepare_assigned((*devices, reference), model, options, assignment)


def _prepare_assigned(
    devices: Sequence[NdkDevice], model: Model, options: CompilationOptions, assignment: Assignment
) -> CompiledPlan:
    used = set(assignment.devices)
    if len(used) == 1:
        return options.prepare(devices[used.pop()], model, range(len(model.main.operations)))
    divided = divide_among(model, assignment.devices, assignment.supports)
    parts = [options.prepare(devices[part.device], part.model, part.operations) for part in divided.parts]
    return PartitionedPlan(divided, parts)
