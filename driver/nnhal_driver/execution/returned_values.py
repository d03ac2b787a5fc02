"""Executions whose inputs are values of this process, and whose outputs are returned: their request and its outputs."""

from collections.abc import Sequence

from nnhal.types import (
    AnyArray,
    DataLocation,
    ExecutionResult,
    Memory,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
)
from nnhal_driver.execution.prepared_model import DEFAULT_CONFIG, PreparedModel
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_driver.graph import array_from_bytes

_UNKNOWN_RANK = (0,)


def returned_request(
    model: PreparedModel, values: Sequence[AnyArray], shapes: Sequence[tuple[int, ...]]
) -> ValidRequest:
    """Return the request to run a model with some inputs, all of whose outputs are returned. No value is copied.

    Args:
        model: the model.
        values: the bytes of the inputs, as arrays of any type and shape.
        shapes: the shapes of the inputs. Those that the model states do not count.

    Raises:
        HalError: INVALID_ARGUMENT: the values do not fit the model.
    """
    arguments = []
    for index, (operand, value, shape) in enumerate(zip(model.inputs, values, shapes, strict=True)):
        is_open = 0 in (operand.dimensions or _UNKNOWN_RANK)
        arguments.append(RequestArgument(False, DataLocation(index, 0, value.nbytes), shape if is_open else ()))
    outputs = (RequestArgument(False, DataLocation(len(values))),) * len(model.outputs)
    pools: tuple[RequestMemoryPool, ...] = (*map(Memory.of, values), ReturnedPool())
    return model.validate(Request(tuple(arguments), outputs, pools), DEFAULT_CONFIG)


def returned_arrays(model: PreparedModel, result: ExecutionResult) -> list[AnyArray]:
    """Return the outputs of such a request."""
    outputs = zip(model.outputs, result.returned, result.output_shapes, strict=True)
    return [
        array_from_bytes(operand, data, shape.dimensions, private=False)
        for operand, data, shape in outputs
        if data is not None
    ]
