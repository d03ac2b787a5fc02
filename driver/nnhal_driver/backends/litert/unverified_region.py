"""A region of the LiteRT extension, run by an interpreter. Shapes of the results may depend on values."""

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.backends.litert.engine import create_interpreter
from nnhal_driver.backends.litert.inlining import element_dtype
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.graph import OperationView
from nnhal_driver.operations.call import OperationCall

_ERRORS = (RuntimeError, ValueError)
"""Exceptions of the interpreter for invalid models and values."""


def unverified_region_of(view: OperationView) -> "UnverifiedRegion":
    """Return the region of an operation. The result is cached in the graph.

    Raises:
        Unsupported: LiteRT does not accept the model.
    """
    key = (unverified_region_of, view.index)
    cached = view.graph.annotations.get(key)
    if cached is None:
        try:
            cached = UnverifiedRegion(view)
        except _ERRORS as error:
            cached = Unsupported(_first_line(error) or "LiteRT does not accept it")
        view.graph.annotations[key] = cached
    if isinstance(cached, Unsupported):
        raise cached
    assert isinstance(cached, UnverifiedRegion)
    return cached


class UnverifiedRegion:
    """One region, with an interpreter for each thread that runs it at the same time.

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
