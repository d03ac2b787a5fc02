"""Compilations of the program."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from nnhal.types import ExecutionPreference, Operand, Priority
from nnhal_ndk.api.constants import PriorityCode
from nnhal_ndk.devices import NdkDevice, all_devices
from nnhal_ndk.execution.arguments import ArgumentSlot
from nnhal_ndk.execution.plan import CompiledPlan, deadline_of
from nnhal_ndk.execution.preparation import CompilationOptions, prepare_for, prepare_with_fallback
from nnhal_ndk.model.convert import to_hal_model
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.results import bad_data, bad_state

_PRIORITIES = {
    PriorityCode.LOW: Priority.LOW,
    PriorityCode.MEDIUM: Priority.MEDIUM,
    PriorityCode.HIGH: Priority.HIGH,
}


class NdkCompilation:
    """Compilation of a model. Several threads may use it once it is finished.

    Args:
        devices: the devices that may run it; None for all.

    Raises:
        NdkError: BAD_STATE: the model is not finished.
    """

    def __init__(self, model: NdkModel, devices: Sequence[NdkDevice] | None = None) -> None:
        model.require_finished()
        self.model = model
        self._devices = devices
        self._lock = threading.Lock()
        self._is_finished = False
        self._plan: CompiledPlan | None = None
        self._options = CompilationOptions()
        self._attributes: set[int] = set()
        self._slots: dict[tuple[int, bool], ArgumentSlot] = {}

    @property
    def plan(self) -> CompiledPlan:
        """The compiled model.

        Raises:
            NdkError: BAD_STATE: it is not finished, or it failed.
        """
        if self._plan is None:
            raise bad_state("the compilation has failed" if self._is_finished else "the compilation is not finished")
        return self._plan

    def operand(self, index: int, *, is_output: bool) -> Operand:
        """Return an input or output.

        Raises:
            NdkError: BAD_DATA: there is no such input or output.
        """
        indexes = self.model.outputs if is_output else self.model.inputs
        if not 0 <= index < len(indexes):
            raise bad_data(f"there is no {'output' if is_output else 'input'} {index}; there are {len(indexes)}")
        return self.model.operands[indexes[index]]

    def slot(self, index: int, *, is_output: bool) -> ArgumentSlot:
        """Return an input or output for executions.

        Raises:
            NdkError: BAD_DATA: there is no such input or output.
        """
        key = index, is_output
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = ArgumentSlot(self.operand(index, is_output=is_output), (self, is_output, index))
        return slot

    def require_single_device(self, subject: str) -> None:
        """Raise BAD_DATA if it was not created for a list of one device, which `subject` needs."""
        if self._devices is None or len(self._devices) != 1:
            raise bad_data(f"{subject} a compilation that was created for one device")

    # ---- Options ------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._is_finished:
            raise bad_state("the compilation is finished and cannot be changed")

    def set_preference(self, preference: int) -> None:
        """Set the intended use.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: there is no such preference.
        """
        self._require_open()
        if preference not in list(ExecutionPreference):
            raise bad_data(f"there is no preference {preference}")
        self._options = replace(self._options, preference=ExecutionPreference(preference))

    def set_priority(self, priority: int) -> None:
        """Set the priority among the compilations of this process.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: there is no such priority.
        """
        self._require_open()
        if priority not in list(PriorityCode):
            raise bad_data(f"there is no priority {priority}")
        self._options = replace(self._options, priority=_PRIORITIES[PriorityCode(priority)])

    def set_timeout(self, duration_ns: int) -> None:
        """Set the time for `finish`; 0 for no limit.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the compilation is not for a list of one device.
        """
        self._require_open()
        self.require_single_device("a timeout needs")
        self._options = replace(self._options, deadline_s=deadline_of(duration_ns))

    def set_caching(self, folder: bytes, token: bytes) -> None:
        """Set the folder of the compilation cache, and the token of this model in it.

        Raises:
            NdkError: BAD_STATE.
        """
        self._require_open()
        self._options = replace(self._options, cache=(folder, token))

    def add_attribute(self, token: int) -> None:
        """Take an attribute of an extension. Devices of nnhal know none, so that it has no effect.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the compilation is not for a list of one device, or has the attribute.
        """
        self._require_open()
        self.require_single_device("an attribute needs")
        if token in self._attributes:
            raise bad_data("the compilation has this attribute already")
        self._attributes.add(token)

    # ---- Finish -------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Compile the model.

        Raises:
            NdkError: BAD_STATE: it was called before; BAD_DATA: no device supports an operation.
            HalError: the compilation failed.
        """
        with self._lock:
            self._require_open()
            self._is_finished = True
        model = to_hal_model(self.model)
        if self._devices is not None:
            self._plan = prepare_for(self._devices, model, self._options)
            return
        *devices, reference = all_devices()
        self._plan = prepare_with_fallback(devices, reference, model, self._options)
