"""Compilations of the program."""

import hashlib
import os
import threading
from collections.abc import Sequence

import nnhal
from nnhal.alignment import ALIGNMENT
from nnhal.errors import HalError
from nnhal.types import ErrorStatus, ExecutionPreference, Model, Priority
from nnhal_ndk.api.constants import PriorityCode, ResultCode
from nnhal_ndk.devices import NdkDevice, all_devices
from nnhal_ndk.execution.plan import CompiledPlan, SingleDevicePlan
from nnhal_ndk.execution.support import supported_operations
from nnhal_ndk.model.convert import to_hal_model
from nnhal_ndk.model.model import NdkModel, NdkOperand
from nnhal_ndk.results import NdkError, bad_data, bad_state

_PRIORITIES = {
    PriorityCode.LOW: Priority.LOW,
    PriorityCode.MEDIUM: Priority.MEDIUM,
    PriorityCode.HIGH: Priority.HIGH,
}
_FINAL = frozenset(
    {ErrorStatus.INVALID_ARGUMENT, ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT}
)
"""Statuses of preparations that another device would not improve."""


class NdkCompilation:
    """Compilation of a model. Several threads may use it once it is finished.

    Args:
        model: the model.
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
        self._preference = ExecutionPreference.FAST_SINGLE_ANSWER
        self._priority = Priority.MEDIUM
        self._timeout_ns = 0
        self._cache: tuple[bytes, bytes] | None = None

    @property
    def has_single_device(self) -> bool:
        """True if it was created for a list of one device, which timeouts and measurements need."""
        return self._devices is not None and len(self._devices) == 1

    @property
    def is_finished(self) -> bool:
        """True if `finish` was called, successfully or not."""
        return self._is_finished

    @property
    def plan(self) -> CompiledPlan:
        """The compiled model.

        Raises:
            NdkError: BAD_STATE: it is not finished, or it failed.
        """
        if self._plan is None:
            raise bad_state("the compilation has failed" if self._is_finished else "the compilation is not finished")
        return self._plan

    def operand(self, index: int, *, is_output: bool) -> NdkOperand:
        """Return an input or output.

        Raises:
            NdkError: BAD_DATA: there is no such input or output.
        """
        indexes = self.model.outputs if is_output else self.model.inputs
        if not 0 <= index < len(indexes):
            raise bad_data(f"there is no {'output' if is_output else 'input'} {index}; there are {len(indexes)}")
        return self.model.operands[indexes[index]]

    def preferred_alignment(self, index: int, *, is_output: bool) -> int:
        """Return the alignment of a value in bytes that suits the device.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: there is no such input or output.
        """
        _ = self.plan
        self.operand(index, is_output=is_output)
        return ALIGNMENT

    def preferred_padding(self, index: int, *, is_output: bool) -> int:
        """Return the number of bytes that a value's size should be a multiple of.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: there is no such input or output.
        """
        _ = self.plan
        self.operand(index, is_output=is_output)
        return 1

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
        self._preference = ExecutionPreference(preference)

    def set_priority(self, priority: int) -> None:
        """Set the priority among the compilations of this process.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: there is no such priority.
        """
        self._require_open()
        if priority not in list(PriorityCode):
            raise bad_data(f"there is no priority {priority}")
        self._priority = _PRIORITIES[PriorityCode(priority)]

    def set_timeout(self, duration_ns: int) -> None:
        """Set the time for `finish`; 0 for no limit.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the compilation is not for a list of one device.
        """
        self._require_open()
        if not self.has_single_device:
            raise bad_data("a timeout needs a compilation that was created for one device")
        self._timeout_ns = duration_ns

    def set_caching(self, folder: bytes, token: bytes) -> None:
        """Set the folder of the compilation cache, and the token of this model in it.

        Raises:
            NdkError: BAD_STATE.
        """
        self._require_open()
        self._cache = (folder, token)

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
        candidates = self._devices if self._devices is not None else all_devices()
        failure: Exception | None = None
        for device in candidates:
            try:
                self._plan = SingleDevicePlan(device, self._prepare(device, model))
                return
            except HalError as error:
                if error.status in _FINAL:
                    raise
                failure = error
        if failure is None:
            raise NdkError(ResultCode.UNAVAILABLE_DEVICE, "there is no device")
        self._require_support(candidates, failure)
        raise failure

    def _require_support(self, devices: Sequence[NdkDevice], failure: Exception) -> None:
        """Check that the devices support all operations, after all of them have failed to prepare the model.

        Raises:
            NdkError: BAD_DATA: none of them supports some operation.
            HalError: a device cannot be reached.
        """
        supported = supported_operations(self.model, devices)
        if not all(supported):
            raise bad_data(f"no device supports operation {supported.index(False)}") from failure

    def _prepare(self, device: NdkDevice, model: Model) -> nnhal.PreparedModel:
        deadline = self._timeout_ns / 1e9 if self._timeout_ns else None
        if self._cache is None:
            return device.hal.prepare(
                model, preference=self._preference, priority=self._priority, deadline=deadline
            ).result()
        folder, token = self._cache
        options = bytes([self._preference, self._priority])
        token = hashlib.sha256(b"\0".join((token, device.name, device.version, options))).digest()
        return device.hal.prepare_with_files(
            model,
            os.fsdecode(folder),
            token,
            preference=self._preference,
            priority=self._priority,
            deadline=deadline,
        )
