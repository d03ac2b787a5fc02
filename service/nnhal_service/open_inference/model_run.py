"""Execution of one request of the Open Inference Protocol by the driver."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhal.errors import invalid_argument
from nnhal.types import AnyArray, ExecutionResult
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import DEFAULT_CONFIG
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_driver.execution.returned_values import returned_request
from nnhal_service.open_inference.guest_model import GuestModel
from nnhal_service.open_inference.shared_memory import RegionPart, SharedRegions
from nnhal_service.open_inference.translation import (
    InferRequest,
    OutputTensor,
    RequestedOutput,
    classification,
    order_inputs,
    output_positions,
    output_tensor,
    to_device,
)


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A request that fits its model, ready to run."""

    model: GuestModel
    request: ValidRequest
    outputs: list[tuple[int, RequestedOutput]]

    @staticmethod
    def of(model: GuestModel, request: InferRequest, states: Sequence[AnyArray], regions: SharedRegions) -> "ModelRun":
        """Check a request, and bind its inputs and states. Inputs are views of the request, or copied from regions.

        Raises:
            HalError: INVALID_ARGUMENT: it does not fit the model.
        """
        served = model.served
        inputs = order_inputs(served, request.inputs)
        outputs = output_positions(served, request.outputs)
        data = [regions.read(each.data) if isinstance(each.data, RegionPart) else each.data for each in inputs]
        values = [to_device(spec, each) for spec, each in zip(served.inputs, data, strict=True)]
        shapes = [tensor.shape for tensor in inputs]
        shapes += [state.initial.shape for state in served.model.states]
        return ModelRun(model, returned_request(model.prepared, [*values, *states], shapes), outputs)

    def execute(self, call: ExecutionCall) -> ExecutionResult:
        """Run the request, after `ServiceParts.begin_execution`.

        Raises:
            HalError: as `PreparedModel.execute_valid`.
        """
        return self.model.prepared.execute_valid(self.request, DEFAULT_CONFIG, call)

    def states(self, result: ExecutionResult) -> list[AnyArray]:
        """Return the states after the execution."""
        first = len(self.model.served.outputs)
        return [np.frombuffer(data, np.uint8) for data in result.returned[first:] if data is not None]

    def response(self, result: ExecutionResult, regions: SharedRegions) -> list[OutputTensor]:
        """Return the outputs for the client. Those in shared memory have been written.

        Raises:
            HalError: INVALID_ARGUMENT: shared memory is too small.
        """
        served = self.model.served
        tensors = []
        for position, output in self.outputs:
            data = result.returned[position]
            assert data is not None, "all outputs are returned"
            shape = result.output_shapes[position].dimensions
            spec = served.outputs[position]
            if output.classes:
                tensor = classification(spec, data, output.classes, served.config.labels)
            else:
                tensor = output_tensor(spec, shape, data)
            tensors.append(tensor if output.part is None else _share(tensor, output.part, regions))
        return tensors


def _share(tensor: OutputTensor, part: RegionPart, regions: SharedRegions) -> OutputTensor:
    """Write an output to shared memory."""
    size = tensor.data.size
    if size > part.size:
        raise invalid_argument(
            f"shared memory size specified with the request for output '{tensor.name}' ({part.size} bytes) should be "
            f"at least {size} bytes to hold the results"
        )
    regions.write(part, tensor.data)
    return replace(tensor, part=part._replace(size=size))
