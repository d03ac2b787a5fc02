"""States of recurrent layers: an interpreter keeps them from one execution to the next, as LiteRT does."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from types import ModuleType

import numpy as np
import pytest

from nnhal import litert
from nnhal.tflite.variables import CELL_STATE
from nnhal.types import AnyArray
from tests.nnhal.litert.corpus import with_shapes
from tests.nnhal.litert.programs import allocated, differences, run
from tests.nnhal.tflite.corpus.cases import Case, cases
from tests.nnhal.tflite.corpus.compare import difference
from tests.nnhal.tflite.corpus.exceptions import crash

litert_interpreter = pytest.importorskip("ai_edge_litert.interpreter")

ENGINE = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN")
"""Layers that CpuAcc leaves to the engine's operator. The others have several operators, which round otherwise."""
OTHERS = ("LSTM", "RNN", "SVDF")
SAMPLE = 5


def observe(module: ModuleType, case: Case) -> list[list[AnyArray]]:
    """Run a model four times, with a reset before the last one."""
    interpreter = allocated(module, case.model())
    results = [run(interpreter, *case.arrays()) for _ in range(3)]
    interpreter.reset_all_variables()
    results.append(run(interpreter, *case.arrays()))
    return results


def has_states(case: Case) -> bool:
    """Return whether a device returns the states of a layer."""
    prepared = allocated(litert, case.model())._subgraphs[0].graph._prepared
    return any(state.name.startswith(CELL_STATE) for state in prepared.states)


def float_models(operator: str) -> Iterator[Case]:
    """Yield the float models of a layer that LiteRT runs."""
    for case in cases(operator):
        if not crash(case.name) and "INT" not in case.name:
            with suppress(RuntimeError, ValueError):
                yield with_shapes(case)


@pytest.mark.parametrize("operator", [*ENGINE, *OTHERS])
def test_layer_keeps_its_states(operator: str) -> None:
    models = list(islice(filter(has_states, float_models(operator)), SAMPLE))
    assert models
    for case in models:
        expected, actual = observe(litert_interpreter, case), observe(litert, case)
        assert not np.array_equal(expected[0][0], expected[1][0]), case.name
        if operator in ENGINE:
            assert list(differences(expected, actual)) == [], case.name
            continue
        for one, other in zip(actual, expected, strict=True):
            assert difference(one[0], other[0]) == "", case.name
