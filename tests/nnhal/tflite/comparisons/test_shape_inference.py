"""Shapes that the importer infers, where those of the file are only placeholders. The corpus tests single operators."""

import numpy as np
import pytest

from nnhal import tflite
from tests.driver.one_operation import device, execute, prepare
from tests.nnhal.tflite.build import Branch, Op, Tensor, build, ints, options

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
RNG = np.random.default_rng(1)


def unknown(rank: int, type_: str = "FLOAT32") -> Tensor:
    """Return a tensor as converters write it if they do not know its shape."""
    return Tensor((1,) * rank, type_, more={"shapeSignature": [-1] * rank})


def scalar(value: int) -> Tensor:
    return Tensor((), "INT32", data=value)


def spectrogram() -> bytes:
    """Return a Fourier transform of overlapping frames, which are gathered at positions computed from the length."""
    sound = Tensor((1, 64), name="sound")
    shape, parts = Tensor((2,), "INT32"), [Tensor((1,), "INT32"), Tensor((1,), "INT32"), Tensor((0,), "INT32")]
    length, last, count = (Tensor((), "INT32") for _ in range(3))
    starts, column, positions = unknown(1, "INT32"), unknown(2, "INT32"), unknown(2, "INT32")
    frames, windowed, expanded = unknown(3), unknown(3), unknown(4)
    spectrum, squeezed = Tensor((1,) * 4, "COMPLEX64"), Tensor((1,) * 3, "COMPLEX64")
    magnitude = unknown(3)
    return build(
        Op("SHAPE", [sound], [shape], options("Shape", outType=2)),
        Op("SPLIT_V", [shape, ints(1, 1, 0), scalar(0)], parts, options("SplitV", numSplits=3)),
        Op("RESHAPE", [parts[1], Tensor((0,), "INT32", data=[])], [length], options("Reshape", newShape=[])),
        Op("SUB", [length, scalar(15)], [last], options("Sub")),
        Op("FLOOR_DIV", [last, scalar(8)], [count]),
        Op("RANGE", [scalar(0), count, scalar(1)], [starts]),
        Op("EXPAND_DIMS", [starts, scalar(1)], [column]),
        Op("ADD", [column, Tensor((1, 16), "INT32", data=np.arange(16)[None])], [positions], options("Add")),
        Op("GATHER", [sound, positions], [frames], options("Gather", axis=1)),
        Op("MUL", [frames, Tensor((16,), data=np.hanning(16))], [windowed], options("Mul")),
        Op("EXPAND_DIMS", [windowed, scalar(2)], [expanded]),
        Op("RFFT2D", [expanded, ints(1, 16)], [spectrum]),
        Op("SQUEEZE", [spectrum], [squeezed], options("Squeeze", squeezeDims=[2])),
        Op("COMPLEX_ABS", [squeezed], [magnitude]),
        inputs=[sound],
    )


@pytest.mark.parametrize("length", [64, 100])
def test_spectrogram(length: int) -> None:
    data, x = spectrogram(), RNG.random((1, length), np.float32)
    engine = interpreter.Interpreter(model_content=data, num_threads=1)
    engine.resize_tensor_input(0, x.shape)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    model = tflite.parse(data, shapes={"sound": x.shape})
    (output,) = execute(prepare(model, device("CpuAcc")), [x])[1]
    np.testing.assert_array_equal(output, engine.get_tensor(engine.get_output_details()[0]["index"]))


def test_declared_shape_is_corrected() -> None:
    x = Tensor((4,), name="x")
    limits = [ints(0), ints(3), ints(1)]
    model = tflite.parse(build(Op("STRIDED_SLICE", [x, *limits], [Tensor((2,))], options("StridedSlice"))))
    (output,) = model.main.output_indexes
    assert model.main.operands[output].dimensions == (3,)


def branch(name: str) -> Branch:
    x, result = Tensor((1, 1)), Tensor((1, 1))
    return Branch([Op(name, [x], [result])], [x], [result])


def test_condition_of_rank_0() -> None:
    """IF on a comparison of shape [1, 1], which a RESHAPE to rank 0 converts to a condition."""
    x = Tensor((1, 1), name="x")
    compared, condition, result = Tensor((1, 1), "BOOL"), Tensor((), "BOOL"), Tensor((1, 1))
    branches = [branch("EXP"), branch("NEG")]
    data = build(
        Op("GREATER", [x, Tensor((), data=0.5)], [compared]),
        Op("RESHAPE", [compared, Tensor((0,), "INT32", data=[])], [condition], options("Reshape", newShape=[])),
        Op("IF", [condition, x], [result], options("If", thenSubgraphIndex=1, elseSubgraphIndex=2), branches=branches),
        inputs=[x],
    )
    prepared = prepare(tflite.parse(data, extension=False), device("CpuAcc"))
    for value in (0.25, 0.75):
        (output,) = execute(prepared, [np.full((1, 1), value, np.float32)])[1]
        np.testing.assert_allclose(output, [[np.exp(value) if value > 0.5 else -value]], rtol=1e-6)
