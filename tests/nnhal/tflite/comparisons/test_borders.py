"""Models at the borders of NNAPI: unknown and empty shapes, no operators, and scales that it forbids."""

import re
from typing import Any

import numpy as np
import pytest

from nnhal import tflite
from tests.driver.backends.litert.submodel.control_flow import body, condition, counter, join
from tests.driver.one_operation import execute, prepare
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options, pack, schema, unpack
from tests.nnhal.tflite.comparisons.against_litert import DEVICE, assert_runs_as_in_litert

ROWS = 3


def list_loop() -> bytes:
    """Return a loop that replaces the rows of a list one by one, as converters write a TensorList.

    It slices the rows before and behind position i, whose number only the execution tells.
    """
    rows: dict[str, Any] = {"shapeSignature": [-1, 4]}
    position, one = counter(), ints(1)
    before, behind, new, joined = (Tensor((1, 4), more=rows) for _ in range(4))
    start, size, next_, sum_ = Tensor((1,), "INT32"), Tensor((2,), "INT32"), Tensor((2,), "INT32"), counter()
    acc, x, row, after = Tensor((1, 4), more=rows), Tensor((ROWS, 4)), Tensor((4,)), Tensor((1,), "INT32")
    step = build(
        Op("ADD", [position, counter(1)], [sum_], options("Add")),
        Op("GATHER", [x, position], [row], options("Gather", axis=0)),
        Op("RESHAPE", [position, one], [start], options("Reshape", newShape=[1])),
        Op("CONCATENATION", [start, ints(-1)], [size], options("Concatenation", axis=0)),
        Op("SLICE", [acc, ints(0, 0), size], [before]),
        Op("RESHAPE", [sum_, one], [after], options("Reshape", newShape=[1])),
        Op("CONCATENATION", [after, ints(0)], [next_], options("Concatenation", axis=0)),
        Op("SLICE", [acc, next_, ints(-1, -1)], [behind]),
        Op("RESHAPE", [row, ints(1, 4)], [new], options("Reshape", newShape=[1, 4])),
        Op("CONCATENATION", [before, new, behind], [joined], options("Concatenation", axis=0)),
        inputs=[position, acc, x],
        outputs=[sum_, joined, x],
    )
    source, zeros = Tensor((ROWS, 4), name="x"), Tensor((ROWS, 4), data=np.zeros((ROWS, 4)))
    results, shape, result = [counter(), Tensor((1, 4)), Tensor((ROWS, 4))], Tensor((2,), "INT32"), Tensor((ROWS, 4))
    main = build(
        Op("WHILE", [counter(0), zeros, source], results, options("While", condSubgraphIndex=1, bodySubgraphIndex=2)),
        Op("SHAPE", [results[1]], [shape], options("Shape", outType=schema.TensorType.INT32)),
        Op("RESHAPE", [results[1], shape], [result], options("Reshape")),
        inputs=[source],
    )
    return join(main, condition(counter(), [acc, x], counter(ROWS)), step)


def test_loop_over_a_list_of_tensors() -> None:
    """With example shapes in place of unknown ones, LiteRT prepares XNNPACK for lists of one row."""
    assert_runs_as_in_litert(list_loop(), [np.arange(12, dtype=np.float32).reshape(ROWS, 4)], exact=True)


def stateful_loop() -> bytes:
    """Return a loop beside a variable, such as a recurrent layer that keeps its state: it doubles a sum five times."""
    handle, x, before = Tensor((), "RESOURCE"), Tensor((2, 3), name="x"), Tensor((2, 3))
    total, results = Tensor((2, 3)), [counter(), Tensor((2, 3))]
    main = build(
        Op("VAR_HANDLE", [], [handle], options("VarHandle", sharedName="sum")),
        Op("READ_VARIABLE", [handle], [before], options("ReadVariable")),
        Op("ADD", [before, x], [total], options("Add")),
        Op("WHILE", [counter(0), total], results, options("While", condSubgraphIndex=1, bodySubgraphIndex=2)),
        Op("ASSIGN_VARIABLE", [handle, results[1]], [], options("AssignVariable")),
        inputs=[x],
        outputs=[results[1]],
    )
    return join(main, condition(counter(), [Tensor((2, 3))]), body(counter(), Tensor((2, 3))))


def test_loop_beside_a_variable() -> None:
    model = tflite.parse(stateful_loop())
    assert [state.name for state in model.states] == ["sum"]
    prepared, state = prepare(model, DEVICE), np.zeros((2, 3), np.float32)
    for expected in (32, 32 * 33):
        result, state = execute(prepared, [np.ones((2, 3), np.float32), state])[1]
        np.testing.assert_array_equal(result, np.full((2, 3), expected, np.float32))


def test_shape_of_a_value_of_unknown_rank_is_not_folded() -> None:
    x, target, shaped = Tensor((2, 6), name="x"), Tensor((1,), "INT32", name="target"), Tensor(())
    shape, rank = Tensor((1,), "INT32"), Tensor((), "INT32")
    data = build(
        Op("RESHAPE", [x, target], [shaped], options("Reshape")),
        Op("SHAPE", [shaped], [shape], options("Shape", outType=schema.TensorType.INT32)),
        Op("RANK", [shaped], [rank], options("Rank")),
        Op("MUL", [shape, rank], [Tensor((1,), "INT32")], options("Mul")),
        inputs=[x, target],
    )
    shapes = {"target": (None,)}
    for target_shape in ([12], [3, 4], [2, 1, 6]):
        arrays = [np.ones((2, 6), np.float32), np.array(target_shape, np.int32)]
        assert_runs_as_in_litert(data, arrays, exact=True, shapes=shapes)


def test_file_without_operators() -> None:
    x, y, constant = Tensor((1, 3), name="x"), Tensor((1, 3)), Tensor((3,), data=[1, 2, 3])
    model = unpack(build(Op("NEG", [x], [y]), inputs=[x], outputs=[x, constant]))
    model.subgraphs[0].operators = []
    assert_runs_as_in_litert(pack(model), [np.ones((1, 3), np.float32)], exact=True)


def test_error_names_the_shape_of_an_empty_tensor() -> None:
    x = Tensor((2, 3), name="x")
    data = build(Op("SLICE", [x, ints(2, 0), ints(0, 3)], [Tensor((0, 3), name="y")]), inputs=[x])
    with pytest.raises(tflite.TfliteError, match=re.escape("tensor 3 ('y') has shape [0, 3]; NNAPI has no empty")):
        tflite.parse(data)


def test_difference_whose_scale_is_tiny() -> None:
    """Quantization gives such a scale to values that are always 0."""
    x, y = (Tensor((2, 3), "INT8", scale=(0.5,), zero_point=(3,)) for _ in range(2))
    data = build(Op("SUB", [x, y], [Tensor((2, 3), "INT8", scale=(1e-8,), zero_point=(-128,))], options("Sub")))
    values = np.random.default_rng(0).integers(-128, 128, (2, 3)).astype(np.int8)
    for other in (values, values[:, ::-1]):
        assert_runs_as_in_litert(data, [values, other], exact=True)
