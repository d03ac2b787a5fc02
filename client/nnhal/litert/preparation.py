"""Subgraphs of a file, prepared on a device for shapes of their inputs."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nnhal.client.core.arrays import Outputs
from nnhal.client.sync.partitioned_model import PartitionedModel
from nnhal.client.sync.prepared_model import PreparedModel
from nnhal.litert.devices import ConnectOptions, shared_device
from nnhal.litert.local import LocalGraph, LocalModel, Shape
from nnhal.litert.model_file import TfliteFile
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.import_model import import_model
from nnhal.tflite.report import ImportReport
from nnhal.tflite.variables import CELL_STATE
from nnhal.tflite_schema.reader import numbers
from nnhal.types import AnyArray, Model, Placement

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

    def prepare(self, subgraph: int, shapes: Mapping[int, Shape]) -> "PreparedGraph | LocalGraph":
        """Prepare a subgraph for shapes of its inputs, by index. LiteRT runs in this process what no device can run.

        Raises:
            TfliteError: neither a device nor LiteRT runs the subgraph.
            HalError: the device cannot be reached, or does not prepare the subgraph.
        """
        model, report = self._import(subgraph, shapes)
        refusals = report.refusals() if model is None else self._shared_refusals
        if model is None or refusals:
            return self._prepare_here(subgraph, shapes, "; ".join(refusals))
        prepared = shared_device(self.device).prepare(model, fallback=True, cache=self.cache).result()
        return PreparedGraph(self.file, subgraph, prepared, [tensor.shape for tensor in report.graph.tensors])

    def _import(self, subgraph: int, shapes: Mapping[int, Shape]) -> tuple[Model | None, ImportReport]:
        declared = self.file.tensors(subgraph)
        changed = {i: shape for i, shape in shapes.items() if shape != tuple(map(int, numbers(declared[i]["shape"])))}
        return import_model(self.file.data, extension=True, shapes=changed, subgraph=subgraph, stateful=True)

    @cached_property
    def _shared_refusals(self) -> list[str]:
        """Refusals of signatures that share variables: the device or LiteRT has the values for all of them."""
        subgraphs = {each.subgraph for each in self.file.signatures.values()} if self.file.has_variables else ()
        return [refusal for subgraph in subgraphs for refusal in self._import(subgraph, {})[1].refusals()]

    @cached_property
    def _local(self) -> LocalModel:
        return LocalModel(self.file)

    def reset_local_states(self) -> None:
        """Set the states of recurrent layers that LiteRT has in this process to zeros."""
        if "_local" in vars(self):
            self._local.interpreter.reset_all_variables()

    def _prepare_here(self, subgraph: int, shapes: Mapping[int, Shape], reason: str) -> LocalGraph:
        try:
            graph = LocalGraph(self._local, subgraph, shapes, reason)
        except ImportError:
            raise TfliteError(f"{self.name}: {reason}; install ai-edge-litert to run it in this process") from None
        except (RuntimeError, ValueError) as error:
            raise TfliteError(f"{self.name}: {reason}; LiteRT in this process: {error}") from None
        warnings.warn(f"LiteRT runs {self.name} in this process: {reason}", stacklevel=5)
        return graph


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
