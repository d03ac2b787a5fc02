"""Compiled models whose executions the CPU repeats if a device fails."""

import logging
import threading
from collections.abc import Callable, Sequence

import nnhal
from nnhal.errors import MISSED_DEADLINE, HalError
from nnhal.types import ErrorStatus
from nnhal_ndk.execution.plan import (
    CompiledPlan,
    ComputeOptions,
    ComputeResult,
    OutputBuffers,
    PlanBurst,
    SingleDevicePlan,
    Value,
)

_log = logging.getLogger("nnhal.ndk")

_FINAL = MISSED_DEADLINE | {ErrorStatus.INVALID_ARGUMENT, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE}
"""Statuses of executions that the CPU does not repeat."""


class FallbackPlan:
    """Model on devices, and on the CPU once one of them has failed. Thread safe."""

    def __init__(self, plan: CompiledPlan, prepare: Callable[[], CompiledPlan]) -> None:
        self._plan = plan
        self._prepare = prepare
        self._lock = threading.Lock()
        self._on_cpu: CompiledPlan | None = None

    @property
    def single(self) -> SingleDevicePlan | None:
        """The plan of the device that runs the whole model unless it fails, or None."""
        return self._plan.single

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model, see `CompiledPlan.run`."""
        return self.run_or_fall_back(self._plan, inputs, outputs, options)

    def run_or_fall_back(
        self, target: CompiledPlan | PlanBurst, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions
    ) -> ComputeResult:
        """Run the model on devices, and repeat the execution on the CPU if they fail. Only they can use their buffers.

        Raises:
            HalError: the execution failed, on the CPU too if it was repeated.
        """
        try:
            return target.run(inputs, outputs, options)
        except HalError as error:
            if error.status in _FINAL or outputs or any(isinstance(value, nnhal.Buffer) for value in inputs):
                raise
            _log.warning("an execution is repeated on the CPU: %s", error)
            return self._prepare_on_cpu().run(inputs, outputs, options)

    def _prepare_on_cpu(self) -> CompiledPlan:
        with self._lock:
            if self._on_cpu is None:
                self._on_cpu = self._prepare()
            return self._on_cpu

    def burst(self) -> "FallbackBurst":
        """Begin a burst. If a device refuses, its executions do not use it."""
        try:
            return FallbackBurst(self, self._plan.burst())
        except HalError as error:
            _log.warning("a device has no burst: %s", error)
            return FallbackBurst(self, None)


class FallbackBurst:
    """Burst on devices. The CPU repeats single executions."""

    def __init__(self, plan: FallbackPlan, burst: PlanBurst | None) -> None:
        self._plan = plan
        self._burst = burst

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model, see `CompiledPlan.run`."""
        if self._burst is None:
            return self._plan.run(inputs, outputs, options)
        return self._plan.run_or_fall_back(self._burst, inputs, outputs, options)

    def close(self) -> None:
        """End the burst."""
        if self._burst is not None:
            self._burst.close()
