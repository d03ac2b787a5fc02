"""State of a subgraph of an interpreter: shapes and values of its tensors, and its executions.

Texts of errors are those of LiteRT, since tests of programs match them.
"""

import os
import weakref
from collections.abc import Sequence

import numpy as np

from nnhal.errors import HalError, SessionLostError
from nnhal.litert.local import LocalGraph, Shape
from nnhal.litert.model_file import Details, TfliteFile, as_bytes
from nnhal.litert.preparation import PreparedGraph, Preparer, Variables
from nnhal.lru import LruDict
from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema.reader import numbers
from nnhal.types import AnyArray

_PREPARED = 8
"""Shapes of inputs for which one subgraph stays prepared."""
_TYPES = {
    "bool": "BOOL",
    **{f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}
_TYPES |= {f"float{bits}": f"FLOAT{bits}" for bits in (16, 32, 64)} | {
    "complex64": "COMPLEX64",
    "complex128": "COMPLEX128",
}
"""LiteRT's names of types, by those of numpy."""
_REFERENCED = """There is at least 1 reference to internal data
      in the interpreter in the form of a numpy array or slice. Be sure to
      only hold the function returned from tensor() if you are using raw
      data access."""


class _Memory:
    """Owner of the views of one array. It lives as long as a view or a slice of a view."""

    def __init__(self, array: AnyArray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class SubgraphState:
    """Tensors of one subgraph: their shapes and values.

    Args:
        variables: values of the variables, which all subgraphs of an interpreter share.
    """

    def __init__(self, preparer: Preparer, index: int, variables: Variables) -> None:
        self._preparer = preparer
        self._file: TfliteFile = preparer.file
        self._index = index
        self._variables = variables
        fields = self._file.subgraphs[index]
        self._tensors = self._file.tensors(index)
        self.inputs: list[int] = list(numbers(fields["inputs"]))
        self.outputs: list[int] = list(numbers(fields["outputs"]))
        self._declared = [tuple(map(int, numbers(tensor["shape"]))) for tensor in self._tensors]
        self._shapes = list(self._declared)
        self._values: dict[int, AnyArray] = {}
        self._views: weakref.WeakSet[_Memory] = weakref.WeakSet()
        self._prepared: LruDict[tuple[Shape, ...], PreparedGraph | LocalGraph] = LruDict(_PREPARED)
        self._graph: PreparedGraph | LocalGraph | None = None
        self._arrays: list[AnyArray] = []

    @property
    def size(self) -> int:
        """Number of its tensors."""
        return len(self._tensors)

    @property
    def graph(self) -> PreparedGraph | LocalGraph:
        """The subgraph on the device.

        Raises:
            RuntimeError: tensors are not allocated.
        """
        if self._graph is None:
            raise RuntimeError("Invoke called on model that is not ready.")
        return self._graph

    def details(self, index: int) -> Details:
        """Return the details of a tensor."""
        return self._file.details(self._index, self._checked(index), self._shapes[index])

    def _checked(self, index: int) -> int:
        """Return an index of a tensor that is in range."""
        if not 0 <= index < self.size:
            raise ValueError(f"Invalid tensor index {index} exceeds max tensor index {self.size}")
        return index

    def _name(self, index: int) -> str:
        return self._tensors[index]["name"] or ""

    def require_no_views(self) -> None:
        """Raise RuntimeError if the program holds a view of a value."""
        if self._views:
            raise RuntimeError(_REFERENCED)

    def resize(self, index: int, shape: Sequence[int], *, strict: bool) -> None:
        """Set the shape of an input. `allocate` makes it count.

        Raises:
            RuntimeError: there is no such input, or it cannot have this shape.
        """
        if index not in self.inputs:
            raise RuntimeError(f"Attempting to resize a fixed-size tensor. Tensor {index} is not an input.")
        new = tuple(map(int, shape))
        if strict:
            self._check_strict(index, new)
        if min(new, default=0) < 0:
            raise RuntimeError(f"BytesRequired number of elements overflowed: tensor {index} has shape {list(new)}.")
        if self._graph is not None and new == self._shapes[index]:
            return
        self._shapes[index] = new
        self._values.pop(index, None)
        self._graph = None

    def _check_strict(self, index: int, new: Shape) -> None:
        signature = numbers(self._tensors[index]["shape_signature"]) or self._declared[index]
        if len(new) != len(signature):
            raise RuntimeError(f"tensor->dims->size != dims.size() ({len(signature)} != {len(new)})")
        for i, (length, known, current) in enumerate(zip(new, signature, self._shapes[index], strict=True)):
            if known != -1 and length != current:
                raise RuntimeError(
                    f"Attempting to resize dimension {i} of tensor {index} with value {current} to {length}. "
                    "ResizeInputTensorStrict only allows mutating unknown dimensions identified by -1."
                )

    def allocate(self) -> None:
        """Prepare the subgraph for the shapes of its inputs, and set all other values to zeros.

        Raises:
            RuntimeError: the file has a part that is not supported, or the device does not prepare it.
        """
        if self._graph is not None and self._graph.process == os.getpid():
            return
        shapes = tuple(self._shapes[index] for index in self.inputs)
        if any(0 in shape for shape in shapes):
            raise RuntimeError(f"an input has no elements, which a device does not take; the shapes are {shapes}")
        graph = self._prepared.use(shapes) if shapes in self._prepared else None
        if graph is None or graph.process != os.getpid():
            try:
                graph = self._preparer.prepare(self._index, dict(zip(self.inputs, shapes, strict=True)))
            except (HalError, TfliteError) as error:
                raise RuntimeError(str(error)) from error
            self._prepared.put(shapes, graph)
        for index, shape in enumerate(graph.shapes):
            if index not in self.inputs and shape is not None:
                self._shapes[index] = shape
        for index in self.inputs:
            if index not in self._values:
                self._values[index] = self._file.zeros(self._index, index, self._shapes[index])
        for index in set(self.outputs).difference(self.inputs):
            known = graph.shapes[index]
            self._values.pop(index, None)
            if known is not None and self._file.constant(self._index, index) is None:
                self._values[index] = self._file.zeros(self._index, index, known)
        self._arrays = [self._values[index] for index in self.inputs]
        if self._graph is None:
            self.reset_states()
        self._graph = graph

    def reset_states(self) -> None:
        """Set the states of recurrent layers to zeros. Resource variables keep their values, as in LiteRT."""
        for key in [key for key in self._variables if key[1] == self._index]:
            del self._variables[key]

    def set(self, index: int, value: object) -> None:
        """Copy a value into an input or output.

        Raises:
            ValueError: the tensor has another type or shape, or no memory.
        """
        memory = self._values.get(index)
        if (
            memory is not None
            and isinstance(value, np.ndarray)
            and value.dtype == memory.dtype
            and value.shape == memory.shape
            and memory.flags.writeable
            and not memory.dtype.hasobject
        ):
            memory[...] = value  # the hot path, in a microsecond
            return
        array = np.asarray(value)
        dtype = self._file.memory_dtype(self._index, self._checked(index))
        if dtype.hasobject and array.dtype.kind in "SU":
            array = array.astype(object)
        if array.dtype.newbyteorder("=") != dtype:
            actual, expected = (_TYPES.get(each.name, "STRING") for each in (array.dtype, dtype))
            raise ValueError(
                f"Cannot set tensor: Got value of type {actual} but expected type {expected} "
                f"for input {index}, name: {self._name(index)} "
            )
        expected_shape = self._shapes[index]
        if array.shape != expected_shape:
            raise ValueError(f"Cannot set tensor: {_mismatch(array.shape, expected_shape, index)}")
        if memory is None:
            hint = "Tensor is unallocated. Try calling allocate_tensors() first"
            if self._graph is not None:
                hint = f"tensor {index} is neither an input nor an output, and its value is on the device"
            raise ValueError(f"Cannot set tensor: {hint}")
        if not memory.flags.writeable:
            memory = self._values[index] = memory.copy()
        np.copyto(memory, as_bytes(array) if dtype.hasobject else array)

    def copy(self, index: int) -> AnyArray:
        """Return a copy of the value of a tensor; as in LiteRT, that of a scalar is not an array.

        Raises:
            ValueError: see `value`.
        """
        copy = self.value(index).copy()
        return copy if copy.ndim else copy[()]

    def value(self, index: int) -> AnyArray:
        """Return the array of an input, an output or a constant.

        Raises:
            ValueError: it has no value yet, or is an intermediate result.
        """
        array = self._values.get(self._checked(index))
        if array is None and index not in self.inputs:
            array = self._file.constant(self._index, index)
        if array is not None:
            return array
        if self._graph is None or index in self.outputs:
            raise ValueError("Tensor data is null. Run allocate_tensors() first")
        raise ValueError(
            f"Tensor data is null: tensor {index} ({self._name(index)}) is an intermediate result, which stays on the "
            "device; run the model with ai_edge_litert to see it, or make it an output of the model"
        )

    def view(self, index: int) -> AnyArray:
        """Return a view of the value of a tensor. While the program holds it, nothing else is possible."""
        array = self.value(index)
        if index in self._values and not array.flags.writeable:
            array = self._values[index] = array.copy()
        memory = _Memory(array)
        self._views.add(memory)
        view = np.asarray(memory)
        return view if view.ndim else view[()]

    def invoke(self) -> None:
        """Run the subgraph.

        Raises:
            RuntimeError: tensors are not allocated, the program holds a view, or the execution failed.
        """
        if self._views:
            raise RuntimeError(_REFERENCED)
        try:
            outputs = self._run()
        except HalError as error:
            raise RuntimeError(str(error)) from error
        for index, output in zip(self.outputs, outputs, strict=False):  # states follow
            if index not in self.inputs:
                self._values[index] = output
                self._shapes[index] = output.shape

    def _run(self) -> Sequence[AnyArray]:
        graph = self.graph
        try:
            return graph.run(self._arrays, self._variables)
        except SessionLostError:
            if graph.process == os.getpid():
                raise
            self.allocate()  # this process is a fork of the one that has prepared it
            return self.graph.run(self._arrays, self._variables)


def _mismatch(actual: Shape, expected: Shape, index: int) -> str:
    """Return how two shapes differ, in LiteRT's words."""
    if len(actual) != len(expected):
        return f"Dimension mismatch. Got {len(actual)} but expected {len(expected)} for input {index}."
    i = next(i for i, (a, b) in enumerate(zip(actual, expected, strict=True)) if a != b)
    return f"Dimension mismatch. Got {actual[i]} but expected {expected[i]} for dimension {i} of input {index}."
