"""Descriptions of memories that executions use as inputs and outputs."""

import logging
import math
from dataclasses import replace

import nnhal
from nnhal.errors import HalError
from nnhal.types import SCALAR_TYPES, Operand
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.tensor_memory import TensorMemory, metadata
from nnhal_ndk.model.operand_type import Dimensions, merge_dimensions
from nnhal_ndk.results import bad_data, bad_state

_log = logging.getLogger("nnhal.ndk")


class NdkMemoryDesc:
    """Description of a memory: its uses, and its dimensions.

    Attributes:
        operand: type and dimensions that all uses share; None without uses.
    """

    def __init__(self) -> None:
        self.roles: dict[tuple[NdkCompilation, bool, int], None] = {}
        self.operand: Operand | None = None
        self.is_finished = False
        self._dimensions: Dimensions = ()

    def _require_open(self) -> None:
        if self.is_finished:
            raise bad_state("the description is finished and cannot be changed")

    def add_role(self, compilation: NdkCompilation, index: int, frequency: float, *, is_output: bool) -> None:
        """Add a use: an input or output of a compilation. `frequency` is above 0 and at most 1.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the compilation cannot be used, there is no such input or output, or it
                contradicts another use.
        """
        self._require_open()
        role = (compilation, is_output, index)
        if role in self.roles:
            raise bad_data("the description has this role already")
        if not math.isfinite(frequency) or not 0 < frequency <= 1:
            raise bad_data(f"{frequency} is not a frequency")
        try:
            _ = compilation.plan
        except Exception:
            raise bad_data("the compilation is not finished, or has failed") from None
        operand = compilation.operand(index, is_output=is_output)
        name = f"{'output' if is_output else 'input'} {index}"
        if self.operand is not None and metadata(self.operand) != metadata(operand):
            raise bad_data(f"{name} has another type than the other roles")
        if operand.type in SCALAR_TYPES and self._dimensions:
            raise bad_data(f"{name} is a scalar")
        dimensions = merge_dimensions(self._dimensions, operand.dimensions, name)
        self._dimensions = dimensions
        self.operand = replace(operand, dimensions=dimensions)
        self.roles[role] = None

    def set_dimensions(self, dimensions: Dimensions) -> None:
        """Set the dimensions.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: they contradict the uses.
        """
        self._require_open()
        if self.operand is not None and self.operand.type in SCALAR_TYPES and dimensions:
            raise bad_data("a scalar has no dimensions")
        self._dimensions = merge_dimensions(self._dimensions, dimensions, "the memory")
        if self.operand is not None:
            self.operand = replace(self.operand, dimensions=self._dimensions)

    def finish(self) -> None:
        """Complete the description.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: it has no uses.
        """
        if self.is_finished:
            raise bad_state("the description is finished already")
        if not self.roles:
            raise bad_data("the description has no roles")
        self.is_finished = True


def allocate_memory(desc: NdkMemoryDesc) -> TensorMemory:
    """Return a new memory. One device holds it if it runs all of its uses; otherwise this process does.

    Raises:
        NdkError: BAD_STATE: the description is not finished.
    """
    if not desc.is_finished or desc.operand is None:
        raise bad_state("the description is not finished")
    return TensorMemory(desc.operand, frozenset(desc.roles), _allocate_on_device(desc))


def _allocate_on_device(desc: NdkMemoryDesc) -> nnhal.Buffer | None:
    plans = [compilation.plan.single for compilation, _, _ in desc.roles]
    devices = {plan.device if plan is not None else None for plan in plans}
    device = devices.pop()
    if devices or device is None:
        return None
    inputs: list[tuple[nnhal.PreparedModel, int]] = []
    outputs: list[tuple[nnhal.PreparedModel, int]] = []
    for plan, (_, is_output, index) in zip(plans, desc.roles, strict=True):
        assert plan is not None
        (outputs if is_output else inputs).append((plan.prepared, index))
    try:
        assert desc.operand is not None
        return device.hal.allocate(inputs=inputs, outputs=outputs, dimensions=desc.operand.dimensions)
    except HalError as error:
        _log.debug("the device allocates no memory, so this process does: %s", error)
        return None
