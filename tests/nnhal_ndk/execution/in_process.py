"""Devices of the C library that run models on CpuRef in this process, without some operations."""

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any, cast

import numpy as np

from nnhal.client.core.arrays import Outputs
from nnhal.errors import HalError
from nnhal.types import (
    UNMEASURED,
    AnyArray,
    Capabilities,
    ErrorStatus,
    Model,
    OperandPerformance,
    OperandType,
    PerformanceInfo,
)
from nnhal_ndk.devices import NdkDevice
from tests.driver.one_operation import execute, prepare


class InProcessDevice:
    """Device that refuses some operations. It stands for its `hal`, too.

    Args:
        refused: types of operations that it does not support.
        exec_time, power_usage: its performance.
        failing: types of operations that it reports support for and fails to prepare.

    Attributes:
        prepared: the models that it has prepared.
        tokens: the tokens of their cache files.
        preparation_error: its preparations fail with this status, if any.
        execution_error: its executions fail with this status, if any.
        dead: its calls fail with this status, if any.
        executions: their number, by "execute" and "burst".
    """

    name, version = b"in process", b"1"

    def __init__(
        self,
        refused: Collection[int] = (),
        exec_time: float = 0.5,
        power_usage: float = 0.5,
        *,
        failing: Collection[int] = (),
        is_reference: bool = False,
    ) -> None:
        self._refused = refused
        self._failing = failing
        self.is_reference = is_reference
        info = PerformanceInfo(exec_time, power_usage)
        by_type = tuple(OperandPerformance(type_, info) for type_ in OperandType if type_ != OperandType.SUBGRAPH)
        self.capabilities = Capabilities(info, info, by_type, info, info)
        self.prepared: list[Model] = []
        self.tokens: list[bytes] = []
        self.preparation_error: ErrorStatus | None = None
        self.execution_error: ErrorStatus | None = None
        self.dead: ErrorStatus | None = None
        self.executions: list[str] = []
        self.hal = self

    @property
    def as_device(self) -> NdkDevice:
        """The device for functions of the library."""
        return cast(NdkDevice, self)

    def supported_operations(self, model: Model) -> list[bool]:
        """Return the operations that it does not refuse."""
        self._require_alive()
        return [operation.type not in self._refused for operation in model.main.operations]

    def prepare(self, model: Model, **_: object) -> "Future[Any]":
        """Prepare a model."""
        future: Future[Any] = Future()
        try:
            self._require_alive()
            if self.preparation_error is not None:
                raise HalError(self.preparation_error, "the preparation fails")
            if any(operation.type in (*self._refused, *self._failing) for operation in model.main.operations):
                raise HalError(ErrorStatus.GENERAL_FAILURE, "the device fails")
            future.set_result(_InProcessModel(self, model))
            self.prepared.append(model)
        except HalError as error:
            future.set_exception(error)
        return future

    def prepare_with_files(self, model: Model, folder: str, token: bytes, **_: object) -> Any:
        """Prepare a model, and note its token."""
        self.tokens.append(token)
        return self.prepare(model).result()

    def _require_alive(self) -> None:
        if self.dead is not None:
            raise HalError(self.dead, "the device is dead")


class _InProcessModel:
    """Prepared model, and its burst."""

    def __init__(self, device: InProcessDevice, model: Model, kind: str = "execute") -> None:
        self._device = device
        self._model = model
        self._kind = kind
        self._prepared = prepare(model)

    def execute(self, inputs: Sequence[AnyArray | None], **_: object) -> Outputs:
        """Run the model."""
        self._device.executions.append(self._kind)
        if self._device.execution_error is not None:
            raise HalError(self._device.execution_error, "the execution fails")
        arrays = [None if value is None else np.asarray(value) for value in inputs]
        return Outputs.of(execute(self._prepared, arrays)[1], (), UNMEASURED)

    def burst(self) -> "_InProcessModel":
        """Begin a burst."""
        self._device._require_alive()
        return _InProcessModel(self._device, self._model, "burst")

    def close(self) -> None:
        """End the burst."""
