"""Compiled models that several devices run, one part after the other."""

from collections.abc import Callable, Sequence

import numpy as np

import nnhal
from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.fallback.division import DividedModel
from nnhal.client.fallback.execution import PartValues
from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal_ndk.execution.plan import ComputeOptions, ComputeResult, OutputBuffers, PlanBurst, SingleDevicePlan, Value

_RunPart = Callable[[Sequence[Value], OutputBuffers, ComputeOptions], ComputeResult]


class PartitionedPlan:
    """Model whose parts run on several devices. Values between them pass through this process."""

    def __init__(self, divided: DividedModel, parts: Sequence[SingleDevicePlan]) -> None:
        self.parts = tuple(parts)
        self._divided = divided
        main = divided.whole.main
        inputs, outputs = (tuple(main.operands[i] for i in ends) for ends in (main.input_indexes, main.output_indexes))
        self._io = ModelIO(inputs, outputs, (), ())

    @property
    def single(self) -> None:
        """None: buffers of devices are not possible."""
        return

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model, see `CompiledPlan.run`."""
        return self.run_parts([part.run for part in self.parts], inputs, options)

    def run_parts(self, run: Sequence[_RunPart], inputs: Sequence[Value], options: ComputeOptions) -> ComputeResult:
        """Run the parts in order, each with its function, and return the outputs of the model.

        Raises:
            HalError: the execution of a part failed.
        """
        arrays = [value for value in inputs if not isinstance(value, nnhal.Buffer)]
        assert len(arrays) == len(inputs), "no device holds memories for this model"
        values = PartValues(self._divided, self._io, arrays)
        for number, run_part in enumerate(run):
            part_inputs = values.inputs_of(number)
            if part_inputs is None:
                raise HalError(ErrorStatus.GENERAL_FAILURE, "an empty tensor cannot pass between devices")
            result = run_part([None if each is None else np.asarray(each) for each in part_inputs], {}, options)
            outputs = (each for each in result.outputs if isinstance(each, np.ndarray))
            values.add(number, Outputs.of(outputs, (), result.timing))
        computed = values.outputs()
        return ComputeResult(computed, computed.timing)

    def burst(self) -> "PartitionedBurst":
        """Begin a burst, see `CompiledPlan.burst`."""
        return PartitionedBurst(self)


class PartitionedBurst:
    """A burst for each part of a model.

    Raises:
        HalError: a device failed.
    """

    def __init__(self, plan: PartitionedPlan) -> None:
        self._plan = plan
        self._bursts: list[PlanBurst] = []
        try:
            for part in plan.parts:
                self._bursts.append(part.burst())
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Sequence[Value], outputs: OutputBuffers, options: ComputeOptions) -> ComputeResult:
        """Run the model, see `CompiledPlan.run`."""
        return self._plan.run_parts([burst.run for burst in self._bursts], inputs, options)

    def close(self) -> None:
        """End the bursts."""
        for burst in self._bursts:
            burst.close()
