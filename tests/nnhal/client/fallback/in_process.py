"""Execution of divided models on CpuRef in this process."""

from collections.abc import Sequence

import numpy as np

from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.fallback.division import DividedModel
from nnhal.client.fallback.execution import PartValues
from nnhal.types import UNMEASURED, AnyArray, Model
from tests.driver.one_operation import execute, prepare


def run_whole(model: Model, inputs: Sequence[AnyArray]) -> list[AnyArray]:
    """Run a model on CpuRef."""
    return execute(prepare(model), inputs)[1]


def model_io(model: Model) -> ModelIO:
    """Return the inputs and outputs of a model."""
    main = model.main
    inputs, outputs = (tuple(main.operands[i] for i in group) for group in (main.input_indexes, main.output_indexes))
    return ModelIO(inputs, outputs, model.input_names, model.output_names)


def run_divided(divided: DividedModel, inputs: Sequence[AnyArray]) -> list[AnyArray] | None:
    """Run the parts of a model on CpuRef; None if an empty value would pass between them."""
    values = PartValues(divided, model_io(divided.whole), list(inputs))
    for number, part in enumerate(divided.parts):
        arrays = values.inputs_of(number)
        if arrays is None:
            return None
        given = [None if value is None else np.asarray(value) for value in arrays]
        results = execute(prepare(part.model), given)[1]
        values.add(number, Outputs.of(results, (), UNMEASURED))
    return list(values.outputs())
