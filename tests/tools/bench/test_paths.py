"""LiteRT alone as a path of a load test."""

from pathlib import Path

import numpy as np

from nnhal import tflite
from nnhal_tools.bench.paths import open_engine
from tests.nnhal.litert.models import several_signatures


def test_inputs_of_a_signature_are_in_the_order_of_the_import(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(several_signatures())
    assert tflite.load(path, signature="add").input_names == ("left", "above")
    arrays = [np.array([[1, 2]], np.float32), np.array([[10, 20]], np.float32)]
    (total,) = open_engine(str(path), arrays, 1, "add")()
    assert total.tolist() == [[11, 22]]
    (scaled,) = open_engine(str(path), [np.arange(4, dtype=np.float32)], 1, "scale")()
    assert scaled.tolist() == [0, 3, 6, 9]
