"""The engine's interpreter: models whose shapes are known at execution."""

import numpy as np
import pytest

from nnhal_driver.backends.litert.engine import Interpreter
from tests.nnhal.tflite.build import Op, Tensor, build

pytest.importorskip("ai_edge_litert.interpreter")


def selection(*, is_dynamic: bool) -> bytes:
    """Return a model whose inputs fit each other, but not in the example shapes of the file."""
    more = {"shapeSignature": [1, -1]} if is_dynamic else {}
    condition, x = Tensor((1, 5), "BOOL"), Tensor((1, 1), more=more)
    return build(Op("SELECT", [condition, x, Tensor((1, 5), data=[[9] * 5])], [Tensor((1, 5))]), inputs=[condition, x])


def test_examples_of_unknown_dimensions_need_not_fit_each_other() -> None:
    engine = Interpreter(selection(is_dynamic=True), threads=1)
    assert [engine.view(tensor).shape for tensor in (0, 1)] == [(1, 5), (1, 1)]
    with pytest.raises(RuntimeError):
        engine.invoke()
    engine.resize({0: (1, 5), 1: (1, 5)})
    engine.write(0, np.array([[True, False, True, False, True]]))
    engine.write(1, np.arange(5, dtype=np.float32).reshape(1, 5))
    engine.invoke()
    np.testing.assert_array_equal(engine.view(3), [[0, 9, 2, 9, 4]])


def test_known_shapes_must_fit_each_other() -> None:
    with pytest.raises(RuntimeError, match="SELECT"):
        Interpreter(selection(is_dynamic=False), threads=1)
