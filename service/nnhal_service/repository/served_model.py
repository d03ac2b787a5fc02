"""Served model: a version of a model in memory, and the description of its tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nnhal.litert_extension import element_dtypes
from nnhal.tflite.graph import TENSOR_DTYPES, Tensor
from nnhal.types import DTYPES, Model, Operand
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.launch import DeviceCall
from nnhal_driver.preparation.model_preparer import share_model
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline
from nnhal_service.repository.model_config import ModelConfig
from nnhal_service.repository.model_folder import Mark
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """Input or output of a model, as its file describes it.

    Attributes:
        dtype: type of the elements in the file.
        device_dtype: type of the elements for the device, which has no integers of 64 bits in some operations.
        shape: dimensions; -1 is an unknown one. () belongs to an unknown rank, too.
        scale, zero_point: quantization of the tensor as a whole; 0 without it.
    """

    name: str
    dtype: np.dtype[Any]
    device_dtype: np.dtype[Any]
    shape: tuple[int, ...]
    scale: float
    zero_point: int


@dataclass(frozen=True, eq=False, slots=True)
class ServedModel:
    """A version of a model that is ready to run. Immutable. It lives as long as a client uses it.

    Attributes:
        model: the graph's names, states and extensions, without its operations and constants.
        inputs, outputs: tensors of the file, without the states.
        marks: numbers of the files that it was loaded from, see `VersionFiles`.
    """

    name: str
    version: int
    config: ModelConfig
    model: Model
    prepared: PreparedModel
    inputs: tuple[NamedTensor, ...]
    outputs: tuple[NamedTensor, ...]
    marks: tuple[Mark, Mark]

    def share(self, session: Session, quota: MemoryQuota, deadline: Deadline = NO_DEADLINE) -> Outcome:
        """Return the outcome of a preparation for a session, which gets a prepared model of its own.

        Raises:
            HalError: MISSED_DEADLINE_PERSISTENT.
        """
        reserve = partial(quota.reserve, session, subject="the execution")
        return share_model(self.prepared, DeviceCall(deadline, reserve=reserve, client=session.client_digest))


def tensor_specs(
    names: Sequence[str], tensors: Sequence[Tensor], operands: Sequence[Operand], model: Model
) -> tuple[NamedTensor, ...]:
    """Return the descriptions of inputs or outputs. The states among the operands follow the tensors of the file."""
    elements = element_dtypes(model.extension_name_to_prefix)
    return tuple(_spec(*each, elements) for each in zip(names, tensors, operands, strict=False))


def _spec(name: str, tensor: Tensor, operand: Operand, elements: dict[int, np.dtype[Any]]) -> NamedTensor:
    dtype = TENSOR_DTYPES[tensor.type]
    is_quantized = len(tensor.scales) == 1
    return NamedTensor(
        name,
        dtype,
        elements.get(operand.type) or DTYPES.get(operand.type, dtype),
        tuple(dimension or -1 for dimension in operand.dimensions),
        tensor.scales[0] if is_quantized else 0.0,
        tensor.zero_points[0] if is_quantized and tensor.zero_points else 0,
    )
