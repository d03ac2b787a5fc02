"""Subgraphs that no device runs: LiteRT runs them in this process, as it does without nnhal."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnhal.client.fallback.placement import FallbackPlacement
from nnhal.litert.model_file import TfliteFile
from nnhal.types import AnyArray

Shape = tuple[int, ...]


class LocalModel:
    """LiteRT's interpreter of a file, which has the tables, variables and states of all subgraphs.

    Raises:
        ImportError: LiteRT is not installed.
        RuntimeError, ValueError: LiteRT does not run the file, either.
    """

    def __init__(self, file: TfliteFile) -> None:
        from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - only these models need it

        self.file = file
        self.interpreter: Any = Interpreter(model_content=file.data.tobytes())
        self._shapes: Sequence[Shape] = ()

    def resize(self, shapes: Mapping[int, Shape]) -> None:
        """Allocate the tensors of the main subgraph, for shapes of all its inputs.

        LiteRT would reset states if this repeated an allocation.
        """
        if self._shapes != list(shapes.values()):
            for index, shape in shapes.items():
                self.interpreter.resize_tensor_input(index, shape)
            self.interpreter.allocate_tensors()
            self._shapes = list(shapes.values())

    def run(self, subgraph: int, inputs: Mapping[int, AnyArray]) -> None:
        """Run the main subgraph, or one that has a signature."""
        if subgraph:
            key = next(key for key, each in self.file.signatures.items() if each.subgraph == subgraph)
            names = self.file.signatures[key].inputs
            self.interpreter.get_signature_runner(key)(**{name: inputs[index] for name, index in names.items()})
            return
        self.resize({index: array.shape for index, array in inputs.items()})
        for index, array in inputs.items():
            self.interpreter.set_tensor(index, array)
        self.interpreter.invoke()


class LocalGraph:
    """Subgraph that LiteRT runs in this process, with the interface of a `PreparedGraph`.

    Args:
        shapes: those of the inputs, by index.
        reason: why no device runs it.

    Raises:
        RuntimeError, ValueError: LiteRT does not run it, either.
    """

    def __init__(self, model: LocalModel, subgraph: int, shapes: Mapping[int, Shape], reason: str) -> None:
        fields = model.file.subgraphs[subgraph]
        self.process = os.getpid()
        self.placement = FallbackPlacement(summary=f"LiteRT runs the model in this process: {reason}")
        self._model, self._subgraph = model, subgraph
        self._inputs, self._outputs = (list(map(int, fields[kind])) for kind in ("inputs", "outputs"))
        if subgraph == 0:
            model.resize(shapes)
        known = {
            each["index"]: tuple(map(int, each["shape"])) for each in model.interpreter.get_tensor_details(subgraph)
        }
        known |= shapes
        self.shapes = [known.get(index) for index in range(len(model.file.tensors(subgraph)))]

    def run(self, inputs: Sequence[AnyArray], variables: object) -> Sequence[AnyArray]:
        """Run the subgraph. LiteRT has the values of the variables.

        Raises:
            RuntimeError, ValueError: the execution failed.
        """
        self._model.run(self._subgraph, dict(zip(self._inputs, inputs, strict=True)))
        return [self._output(index) for index in self._outputs]

    def _output(self, index: int) -> AnyArray:
        value = self._model.interpreter.get_tensor(index, self._subgraph)
        return np.asarray(value, self._model.file.memory_dtype(self._subgraph, index))
