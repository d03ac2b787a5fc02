"""Shapes of inputs that the caller chooses, compared with LiteRT after `resize_tensor_input`."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from nnhal.tflite import TfliteError
from nnhal.types import AnyArray
from tests.driver.one_operation import device, execute, prepare
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options
from tests.nnhal.tflite.comparisons.against_litert import assert_runs_as_in_litert

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
RNG = np.random.default_rng(1)


def image_model() -> bytes:
    """Return a convolution, a mean over the image, and a reshape whose shape is computed from the batch."""
    image = Tensor((1, 6, 6, 2), name="image", more={"shapeSignature": [-1, 6, 6, 2]})
    weights, bias = Tensor((3, 3, 3, 2), data=RNG.random((3, 3, 3, 2))), Tensor((3,), data=RNG.random(3))
    features, mean = Tensor((1, 6, 6, 3), name="features"), Tensor((1, 3), name="mean")
    shape, batch, packed = Tensor((2,), "INT32"), Tensor((), "INT32"), Tensor((3,), "INT32")
    scores = Tensor((1, 3, 1), name="scores")
    three, one = Tensor((), "INT32", data=3), Tensor((), "INT32", data=1)
    return build(
        Op("CONV_2D", [image, weights, bias], [features], options("Conv2D", strideW=1, strideH=1)),
        Op("MEAN", [features, ints(1, 2)], [mean], options("Reducer")),
        Op("SHAPE", [mean], [shape], options("Shape", outType=2)),
        Op("STRIDED_SLICE", [shape, ints(0), ints(1), ints(1)], [batch], options("StridedSlice", shrinkAxisMask=1)),
        Op("PACK", [batch, three, one], [packed], options("Pack", valuesCount=3)),
        Op("RESHAPE", [mean, packed], [scores], options("Reshape")),
        inputs=[image],
    )


def sequence_model() -> bytes:
    """Return a product of each element of a sequence with a matrix, and a maximum over the sequence."""
    sequence = Tensor((1, 5, 2), name="sequence", more={"shapeSignature": [1, -1, 2]})
    bias = Tensor((4,), data=RNG.random(4))
    elements, largest = Tensor((1, 5, 4), name="elements"), Tensor((1, 4), name="largest")
    return build(
        Op("TANH", [sequence], [squashed := Tensor((1, 5, 2))]),
        Op("BATCH_MATMUL", [squashed, Tensor((1, 2, 4), data=RNG.random((1, 2, 4)))], [elements]),
        Op("ADD", [elements, bias], [shifted := Tensor((1, 5, 4))], options("Add")),
        Op("REDUCE_MAX", [shifted, ints(1)], [largest], options("Reducer")),
        inputs=[sequence],
    )


def run_litert(data: bytes, x: AnyArray) -> list[AnyArray]:
    engine = interpreter.Interpreter(model_content=data, num_threads=1)
    engine.resize_tensor_input(engine.get_input_details()[0]["index"], x.shape)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    return [engine.get_tensor(detail["index"]) for detail in engine.get_output_details()]


def run_nnhal(data: bytes, name: str, shape: Sequence[int | None], x: AnyArray, backend: str) -> list[AnyArray]:
    model = tflite.parse(data, shapes={name: shape})
    return execute(prepare(model, device(backend)), [x])[1]


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
@pytest.mark.parametrize("length", [4, None, 0])
def test_batch(backend: str, length: int | None) -> None:
    data, x = image_model(), RNG.random((4, 6, 6, 2), np.float32)
    (output,) = run_nnhal(data, "image", (length, 6, 6, 2), x, backend)
    assert output.shape == (4, 3, 1)
    np.testing.assert_allclose(output, run_litert(data, x)[0], rtol=1e-5)


@pytest.mark.parametrize("backend, length", [("CpuRef", 9), ("CpuRef", None), ("CpuAcc", 9)])
def test_length_of_a_sequence(backend: str, length: int | None) -> None:
    data, x = sequence_model(), RNG.random((1, 9, 2), np.float32)
    (output,) = run_nnhal(data, "sequence", (1, length, 2), x, backend)
    np.testing.assert_allclose(output, run_litert(data, x)[0], rtol=1e-5)


def test_shape_of_the_file_is_the_default() -> None:
    model = tflite.parse(image_model())
    assert model.main.operands[model.main.input_indexes[0]].dimensions == (1, 6, 6, 2)


@pytest.mark.parametrize(
    "shapes, reason",
    [
        ({"picture": (1, 6, 6, 2)}, "model: has no input 'picture'; there are 'image'"),
        ({"image": (6, 6, 2)}, "model: tensor 0 ('image') cannot have shape [6, 6, 2]: the file has [1, 6, 6, 2]"),
        ({"image": (-2, 6, 6, 2)}, "model: tensor 0 ('image') cannot have shape [-2, 6, 6, 2]: the file has"),
    ],
)
def test_invalid_shape(shapes: Any, reason: str) -> None:
    with pytest.raises(TfliteError, match=re.escape(reason)):
        tflite.parse(image_model(), shapes=shapes)


def needing_file() -> bytes:
    """Return a RESHAPE to the number of elements, and a tensor that is filled, changed and added."""
    x, y, length = Tensor((2, 3), name="x"), Tensor((6,)), Tensor((2,), "INT32")
    count, filled, changed, result = Tensor((1,), "INT32"), Tensor((2, 3)), Tensor((2, 3)), Tensor((2, 3))
    position, update = Tensor((1, 2), "INT32", data=[[1, 2]]), Tensor((1,), data=[3])
    return build(
        Op("SHAPE", [x], [length], options("Shape", outType=2)),
        Op("REDUCE_PROD", [length, ints(0)], [count], options("Reducer", keepDims=True)),
        Op("RESHAPE", [x, count], [y], options("Reshape")),
        Op("FILL", [length, Tensor((), data=2.5)], [filled]),
        Op("SCATTER_ND", [position, update, length], [changed]),
        Op("ADD", [filled, changed], [result], options("Add")),
        outputs=[y, result],
    )


def test_unknown_shape_that_an_operator_needs() -> None:
    with pytest.raises(TfliteError, match="has unknown dimensions"):
        tflite.parse(needing_file(), shapes={"x": (None, 3)}, extension=False)


@pytest.mark.parametrize("shape", [(None, 3), (None, None), (5, 3)])
def test_operators_on_shapes_run_in_regions(shape: Sequence[int | None]) -> None:
    assert_runs_as_in_litert(needing_file(), [RNG.random((5, 3), np.float32)], shapes={"x": shape})
