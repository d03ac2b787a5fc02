"""Subgraphs of a file, prepared on a device for shapes of their inputs."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnhal.client.core.arrays import Outputs
from nnhal.client.sync.partitioned_model import PartitionedModel
from nnhal.client.sync.prepared_model import PreparedModel
from nnhal.litert.devices import ConnectOptions, shared_device
from nnhal.litert.model_file import TfliteFile
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.import_model import import_model
from nnhal.tflite.variables import CELL_STATE
from nnhal.types import AnyArray, Placement

Shape = tuple[int, ...]
Convert = Callable[[AnyArray], AnyArray]
Variables = dict[tuple[str, int | None], AnyArray]
"""Values of variables by name. The state of a recurrent layer also has the number of its subgraph."""


@dataclass(frozen=True)
class Preparer:
    """Prepares subgraphs of a file on a device."""

    file: TfliteFile
    name: str
    device: ConnectOptions
    cache: bool

    def prepare(self, subgraph: int, shapes: Mapping[int, Shape]) -> "PreparedGraph":
        """Prepare a subgraph for shapes of inputs, by index, that differ from those of the file.

        Raises:
            TfliteError: a part of the subgraph is not supported.
            HalError: the device cannot be reached, or does not prepare the subgraph.
        """
        model, report = import_model(self.file.data, extension=True, shapes=shapes, subgraph=subgraph, stateful=True)
        if model is None:
            raise TfliteError(f"{self.name}: {'; '.join(report.refusals())}")
        prepared = shared_device(self.device).prepare(model, fallback=True, cache=self.cache).result()
        return PreparedGraph(self.file, subgraph, prepared, [tensor.shape for tensor in report.graph.tensors])


class PreparedGraph:
    """Subgraph on a device.

    Attributes:
        shapes: the shape of each tensor of the file; None if only an execution tells it.
        process: the process that has prepared it. A fork of it prepares again.
    """

    def __init__(
        self, file: TfliteFile, subgraph: int, prepared: PreparedModel | PartitionedModel, shapes: Sequence[Shape]
    ) -> None:
        fields = file.subgraphs[subgraph]
        self.process = os.getpid()
        self.shapes = [None if min(shape, default=0) < 0 else shape for shape in shapes[: len(file.tensors(subgraph))]]
        self._prepared = prepared
        self._execute = prepared.execute if isinstance(prepared, PartitionedModel) else prepared.burst().execute
        inputs, outputs = (list(map(int, fields[kind])) for kind in ("inputs", "outputs"))
        self._to_device = {
            position: _cast(info.dtype, info.shape or shapes[index])
            for position, (index, info) in enumerate(zip(inputs, prepared.inputs, strict=False))
            if (info.dtype, info.shape) != (file.dtype(subgraph, index), shapes[index])
        }
        self._initial: Variables = {}
        for state in prepared.states:
            info = prepared.inputs[state.input_index]
            owner = subgraph if state.name.startswith(CELL_STATE) else None
            self._initial[state.name, owner] = _cast(info.dtype, info.shape)(state.initial)
        self._from_device: dict[int, Convert] = {}
        for position, (index, info) in enumerate(zip(outputs, prepared.outputs, strict=False)):
            dtype = file.dtype(subgraph, index)
            if info.dtype != dtype or self.shapes[index] == ():
                self._from_device[position] = _cast(dtype, self.shapes[index] if self.shapes[index] == () else None)

    @property
    def placement(self) -> Placement:
        """Backend of each operation, with reasons."""
        return self._prepared.placement

    def run(self, inputs: Sequence[AnyArray], variables: Variables) -> Sequence[AnyArray]:
        """Run the subgraph.

        Args:
            inputs: arrays with the types and shapes of the file.
            variables: values of the variables, which the execution changes.

        Raises:
            HalError: the execution failed.
            ValueError: a value does not fit into the type of the device.
        """
        if self._to_device:
            inputs = [self._to_device[i](each) if i in self._to_device else each for i, each in enumerate(inputs)]
        if self._initial:
            inputs = [*inputs, *(variables.get(key, initial) for key, initial in self._initial.items())]
        outputs: Outputs = self._execute(inputs)
        for state, key in zip(self._prepared.states, self._initial, strict=True):
            variables[key] = outputs[state.output_index]
        if self._from_device:
            return [self._from_device[i](each) if i in self._from_device else each for i, each in enumerate(outputs)]
        return outputs


def _cast(dtype: np.dtype[Any] | None, shape: Shape | None) -> Convert:
    """Return a function that converts arrays to a type and, unless it is None, to a shape."""

    def convert(array: AnyArray) -> AnyArray:
        converted = array if dtype is None else array.astype(dtype)
        if dtype is not None and dtype.itemsize < array.dtype.itemsize and not np.array_equal(converted, array):
            raise ValueError(f"a value of type {array.dtype} does not fit into {dtype}, which the device computes with")
        return converted if shape is None else converted.reshape(shape)

    return convert
