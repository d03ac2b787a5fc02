"""Backend Unverified, which runs regions of the LiteRT extension as they are, without verification.

CpuAcc refuses regions that it cannot verify, because LiteRT trusts a model: a wrong index makes it read or write
anywhere. A process that serves only the owner of the model may run them all the same. So an embedded service has this
backend after the others, and `nnhal serve` has it only if `--backends` names it.
"""

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.backends.api import OperationView, Support
from nnhal_driver.backends.litert.backend import LitertBackend
from nnhal_driver.backends.litert.engine import create_interpreter, require_engine
from nnhal_driver.backends.litert.inlining import cached_in_graph, element_dtype, is_submodel
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.backends.per_operation import PerOperationBackend, Workload
from nnhal_driver.backends.registry import register
from nnhal_driver.operations.call import OperationCall

_ERRORS = (RuntimeError, ValueError)
"""Exceptions of the interpreter for invalid models and values."""


@register
class Unverified(LitertBackend, PerOperationBackend):
    """Backend for regions of the LiteRT extension that CpuAcc cannot verify. Only for models that are trusted.

    Raises:
        EngineMissingError: the package ai-edge-litert is not installed.
    """

    id = "Unverified"
    version = "1"

    def __init__(self) -> None:
        require_engine()

    def supports(self, operation: OperationView) -> Support:
        """Support every region that LiteRT itself accepts."""
        if not is_submodel(operation):
            return Support("it runs regions of the LiteRT extension only")
        try:
            cached_in_graph(operation, _create_region)
        except Unsupported as error:
            return Support(error.reason)
        return Support()

    def workload(self, operation: OperationView) -> Workload:
        """Return a region, with the interpreter that `supports` has created."""
        return cached_in_graph(operation, _create_region).run


def _create_region(view: OperationView) -> "UnverifiedRegion":
    try:
        return UnverifiedRegion(view)
    except _ERRORS as error:
        raise Unsupported(_first_line(error) or "LiteRT does not accept it") from None


class UnverifiedRegion:
    """One region, with an interpreter for each thread that runs it at the same time. Shapes may depend on values.

    Raises:
        RuntimeError, ValueError: LiteRT does not accept the model.
    """

    def __init__(self, view: OperationView) -> None:
        data = view.graph.constants.get(view.operation.inputs[0])
        if data is None:
            raise ValueError("the sub-model is not constant")
        self._data = data.tobytes()
        self._idle: SimpleQueue[Any] = SimpleQueue()
        self._dtypes = [element_dtype(view.graph, operand) for operand in view.operation.inputs[1:]]
        self._opaque = [element_dtype(view.graph, operand) is not None for operand in view.operation.outputs]
        interpreter = self._create()
        expected = len(interpreter.get_input_details()), len(interpreter.get_output_details())
        if expected != (len(self._dtypes), len(self._opaque)):
            raise ValueError("the sub-model has {} inputs and {} outputs; the operation differs".format(*expected))
        self._idle.put(interpreter)

    def _create(self) -> Any:
        interpreter = create_interpreter(self._data)
        interpreter.allocate_tensors()
        return interpreter

    def run(self, call: OperationCall) -> Sequence[AnyArray]:
        """Run the region once.

        Raises:
            HalError: LiteRT rejects the values.
        """
        try:
            interpreter = self._idle.get_nowait()
        except Empty:
            interpreter = self._create()
        values = [call.array(f"input{i}") for i in range(1, len(self._dtypes) + 1)]
        try:
            self._set_inputs(interpreter, values)
            interpreter.invoke()
            results = [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
        except _ERRORS as error:
            raise call.failure(_first_line(error)) from None
        self._idle.put(interpreter)
        return [_as_operand(*pair) for pair in zip(results, self._opaque, strict=True)]

    def _set_inputs(self, interpreter: Any, values: Sequence[AnyArray]) -> None:
        details = interpreter.get_input_details()
        tensors = [
            value if dtype is None else np.ascontiguousarray(value).view(dtype)
            for value, dtype in zip(values, self._dtypes, strict=True)
        ]
        shapes = [_shape(tensor, detail) for tensor, detail in zip(tensors, details, strict=True)]
        for shape, detail in zip(shapes, details, strict=True):
            if shape != tuple(detail["shape"]):
                interpreter.resize_tensor_input(detail["index"], shape)
        interpreter.allocate_tensors()
        for tensor, shape, detail in zip(tensors, shapes, details, strict=True):
            interpreter.set_tensor(detail["index"], tensor.reshape(shape))


def _shape(value: AnyArray, detail: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape of a value for LiteRT. A tensor of rank 0 is [1] as an operand."""
    return () if value.shape == (1,) and not len(detail["shape"]) else value.shape


def _as_operand(array: AnyArray, is_opaque: bool) -> AnyArray:
    """Return a result as the value of an operand: rank 0 is [1]; elements of the extension's types are bytes."""
    array = np.ascontiguousarray(array.reshape(array.shape or (1,)))
    if not is_opaque:
        return array
    return array.view(np.uint8 if array.itemsize == 1 else np.dtype((np.void, array.itemsize)))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
