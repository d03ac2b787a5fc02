"""Execution of one request of the Open Inference Protocol by the driver."""

from dataclasses import dataclass

from nnhal.types import (
    PROT_READ,
    Bytes,
    DataLocation,
    ExecutionConfig,
    ExecutionResult,
    Memory,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
)
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.request_binding import ValidRequest
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

_CONFIG = ExecutionConfig()


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
        values += [Memory.of(state.initial).buffer for state in served.model.states]
        pools: list[RequestMemoryPool] = [Memory(value, prot=PROT_READ) for value in values]
        pools.append(ReturnedPool())
        shapes = tuple(tensor.shape for tensor in inputs)
        form = model.forms.get(shapes)
        if form is None:
            form = model.forms[shapes] = _validate(model, shapes, values, tuple(pools))
            model.forms.put(shapes, form)
        return ModelRun(model, form.with_pools(tuple(pools)), outputs)

    def execute(self, call: ExecutionCall) -> ExecutionResult:
        """Run the request, after `ServiceParts.begin_execution`.

        Raises:
            HalError: as `PreparedModel.execute_valid`.
        """
        return self.model.prepared.execute_valid(self.request, _CONFIG, call)

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


def _validate(
    model: GuestModel, shapes: tuple[tuple[int, ...], ...], values: list[Bytes], pools: tuple[RequestMemoryPool, ...]
) -> ValidRequest:
    """Return the validated request of a form. States have the shapes of the model."""
    arguments = []
    for index, value in enumerate(values):
        is_open = index < len(shapes) and -1 in (model.served.inputs[index].shape or (-1,))
        dimensions = shapes[index] if is_open else ()
        arguments.append(RequestArgument(False, DataLocation(index, 0, value.size), dimensions))
    outputs = (RequestArgument(False, DataLocation(len(values))),) * len(model.prepared.outputs)
    return model.prepared.validate_execution(Request(tuple(arguments), outputs, pools), _CONFIG)
