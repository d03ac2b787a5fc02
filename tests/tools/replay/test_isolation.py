"""Models whose operations each get given values, which show which backend differs in which operation."""

import numpy as np

from nnhal.recording.tensor_difference import expose_intermediates, isolate_operations
from nnhal_tools.cli.model import load_model
from tests.driver.one_operation import execute, prepare
from tests.tools.cli.command import DIGITS


def test_isolated_operations_compute_the_same_from_given_values() -> None:
    model = load_model(DIGITS)
    x = np.full(model.main.operands[model.main.input_indexes[0]].dimensions, 7).astype(np.float32)
    values = execute(prepare(expose_intermediates(model)), [x])[1]
    isolated = isolate_operations(model)
    for actual, expected in zip(execute(prepare(isolated), [x, *values])[1], values, strict=True):
        np.testing.assert_array_equal(actual, expected)
    zeros = [np.zeros_like(value) for value in values]
    differ = [
        not np.array_equal(actual, expected)
        for actual, expected in zip(execute(prepare(isolated), [x, *zeros])[1], values, strict=True)
    ]
    first = isolated.main.output_indexes.index(isolated.main.operations[0].outputs[0])
    assert not differ[first] and any(differ)
