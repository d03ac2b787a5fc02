"""Compiled models, and their form on one device."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import nnhal
from nnhal.client.core.buffers import BufferBase
from nnhal.client.sync.burst import Burst
from nnhal.types import AnyArray, Timing
from nnhal_ndk.devices import NdkDevice

OutputBuffers = Mapping[int, nnhal.Buffer]
"""Buffers of the device for outputs, by position."""

Value = AnyArray | nnhal.Buffer | None
"""Value of an input: an array, a buffer of the device, or None if it is omitted."""


_NO_LIMIT_NS = 10**17
"""Durations of years are not limits, because deadlines of the HAL are absolute times in 63 bits."""


def deadline_of(duration_ns: int) -> float | None:
    """Return a duration of the program in seconds, or None if it sets no limit."""
    return duration_ns / 1e9 if 0 < duration_ns < _NO_LIMIT_NS else None


class ComputeOptions(NamedTuple):
    """Options of one computation.

    Attributes:
        deadline_s: seconds from now, or None.
        loop_timeout_s: timeout of each WHILE in seconds, or None for the default.
    """

    deadline_s: float | None = None
    measure: bool = False
    loop_timeout_s: float | None = None


class ComputeResult(NamedTuple):
    """Outputs of a computation: arrays, or the buffers that they were written to."""

    outputs: Sequence[AnyArray | BufferBase]
    timing: Timing


class PlanBurst(Protocol):
    """Burst: executions of a compiled model, one after the other."""

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model, see `CompiledPlan.run`."""
        ...

    def close(self) -> None:
        """End the burst."""
        ...


class CompiledPlan(Protocol):
    """Compiled model."""

    @property
    def single(self) -> "SingleDevicePlan | None":
        """The plan itself, if one device runs the whole model."""
        ...

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model with one value for each input. Outputs go to buffers by position, or are returned.

        Raises:
            HalError: the execution failed.
        """
        ...

    def burst(self) -> PlanBurst:
        """Begin a burst.

        Raises:
            HalError: the device failed.
        """
        ...


class SingleDevicePlan:
    """Model that one device runs."""

    def __init__(self, device: NdkDevice, prepared: nnhal.PreparedModel) -> None:
        self.device = device
        self.prepared = prepared

    @property
    def single(self) -> "SingleDevicePlan":
        """The plan itself."""
        return self

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model, see `CompiledPlan.run`."""
        result = self.prepared.execute(
            inputs,
            outputs=outputs or None,
            deadline=options.deadline_s,
            measure_timing=options.measure,
            loop_timeout=options.loop_timeout_s,
        )
        return ComputeResult(result, result.timing)

    def burst(self) -> "SingleDeviceBurst":
        """Begin a burst, see `CompiledPlan.burst`."""
        return SingleDeviceBurst(self, self.prepared.burst())


class SingleDeviceBurst:
    """Burst on one device."""

    def __init__(self, plan: SingleDevicePlan, burst: Burst) -> None:
        self._plan = plan
        self._burst = burst

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model, see `CompiledPlan.run`. The bursts of the client have no loop timeouts."""
        if options.loop_timeout_s is not None:
            return self._plan.run(inputs, outputs, options)
        result = self._burst.execute(
            inputs, outputs=outputs or None, deadline=options.deadline_s, measure_timing=options.measure
        )
        return ComputeResult(result, result.timing)

    def close(self) -> None:
        """End the burst."""
        self._burst.close()
