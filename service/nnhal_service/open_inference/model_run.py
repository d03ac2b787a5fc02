"""Execution of one request of the Open Inference Protocol by the driver."""

from dataclasses import dataclass

from nnhal.types import ExecutionResult
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_driver.execution.returned_values import DEFAULT_CONFIG, returned_request
from nnhal_service.open_inference.guests import GuestModel
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
    def of(model: GuestModel, request: InferRequest) -> "ModelRun":
        """Check a request, and bind its inputs. They are views of the request, not copies.

        Raises:
            HalError: INVALID_ARGUMENT: it does not fit the model.
        """
        served = model.served
        inputs = order_inputs(served, request.inputs)
        outputs = output_positions(served, request.outputs)
        values = [to_device(spec, tensor.data) for spec, tensor in zip(served.inputs, inputs, strict=True)]
        shapes = [tensor.shape for tensor in inputs]
        states = [state.initial for state in served.model.states]
        bound = returned_request(model.prepared, [*values, *states], [*shapes, *(state.shape for state in states)])
        return ModelRun(model, bound, outputs)

    def execute(self, call: ExecutionCall) -> ExecutionResult:
        """Run the request, after `ServiceParts.begin_execution`.

        Raises:
            HalError: as `PreparedModel.execute_valid`.
        """
        return self.model.prepared.execute_valid(self.request, DEFAULT_CONFIG, call)

    def response(self, result: ExecutionResult) -> list[OutputTensor]:
        """Return the outputs for the client."""
        served = self.model.served
        tensors = []
        for position, output in self.outputs:
            data = result.returned[position]
            assert data is not None, "all outputs are returned"
            shape = result.output_shapes[position].dimensions
            spec = served.outputs[position]
            if output.classes:
                tensors.append(classification(spec, data, output.classes, served.config.labels))
            else:
                tensors.append(output_tensor(spec, shape, data))
        return tensors
