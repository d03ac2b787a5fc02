"""Vectors of operations that move data, of several outputs, of omitted inputs and of outputs without elements."""

import numpy as np

from tools.conformance.builtin import builtin
from tools.conformance.builtin.writer import Graph, case
from tools.conformance.vectors import Case

F32, I32, I8 = "TENSOR_FLOAT32", "TENSOR_INT32", "TENSOR_QUANT8_ASYMM_SIGNED"


@builtin
def split_int32() -> Case:
    """Three outputs."""
    x = np.arange(12).reshape(2, 6)
    graph = Graph()
    inputs = [graph.input(I32, x.shape), graph.int32(-1), graph.int32(3)]
    graph.apply("SPLIT", inputs, [graph.output(I32, (2, 2)) for _ in range(3)])
    return case("split_int32", graph, [x], np.split(x, 3, axis=1))


@builtin
def topk_float() -> Case:
    """Two outputs of different types."""
    x = np.array([[3, 9, -1, 4], [0.5, 0.25, 8, 7]], np.float32)
    order = np.argsort(-x, axis=1)[:, :2]
    graph = Graph()
    outputs = [graph.output(F32, (2, 2)), graph.output(I32, (2, 2))]
    graph.apply("TOPK_V2", [graph.input(F32, x.shape), graph.int32(2)], outputs)
    return case("topk_float", graph, [x], [np.take_along_axis(x, order, 1), order])


@builtin
def concatenation_int8() -> Case:
    """Signed bytes of one quantisation."""
    a, b = np.array([[1, -128], [3, 4]]), np.array([[127], [-6]])
    graph = Graph()
    inputs = [graph.input(I8, a.shape, 0.5, 2), graph.input(I8, b.shape, 0.5, 2), graph.int32(1)]
    graph.apply("CONCATENATION", inputs, [graph.output(I8, (2, 3), 0.5, 2)])
    return case("concatenation_int8", graph, [a, b], [np.concatenate([a, b], 1)])


@builtin
def transpose_default() -> Case:
    """The permutation is left out by the model: axes are reversed."""
    x = np.arange(6.0).reshape(2, 3)
    graph = Graph()
    inputs = [graph.input(F32, x.shape), graph.no_value(I32)]
    graph.apply("TRANSPOSE", inputs, [graph.output(F32, (3, 2))])
    return case("transpose_default", graph, [x], [x.T])


@builtin
def svdf_without_bias() -> Case:
    """The bias is left out by the request."""
    rng = np.random.default_rng(8)
    x, features, times = rng.integers(-3, 4, (2, 3)), rng.integers(-3, 4, (4, 3)), rng.integers(-3, 4, (4, 2))
    graph = Graph()
    inputs = [graph.input(F32, x.shape), graph.constant(F32, features), graph.constant(F32, times)]
    inputs += [graph.input(F32, (4,)), graph.input(F32, (2, 8)), graph.int32(1), graph.int32(0)]
    graph.apply("SVDF", inputs, [graph.output(F32, (2, 8)), graph.output(F32, (2, 4))])
    expected = (x @ features.T) * times[:, -1]  # the state, all the rest of the time window, is zero
    return case("svdf_without_bias", graph, [x, None, np.zeros((2, 8))], [np.zeros((2, 8)), expected], ignored=[0])


@builtin
def no_boxes() -> Case:
    """All scores are below the threshold, so that every output has no element."""
    graph = Graph()
    scores, rois = graph.input(F32, (2, 2)), graph.input(F32, (2, 8))
    batches = graph.constant(I32, [0, 0])
    numbers = [graph.float32(0.9), graph.int32(-1), graph.int32(0)]  # threshold, detections, kernel
    numbers += [graph.float32(value) for value in (0.5, 1.0, 0.5)]  # IoU, sigma, threshold of soft suppression
    outputs = [graph.output(F32, (0,)), graph.output(F32, (0, 4)), graph.output(I32, (0,)), graph.output(I32, (0,))]
    graph.apply("BOX_WITH_NMS_LIMIT", [scores, rois, batches, *numbers], outputs)
    boxes = np.tile([0.0, 0, 10, 10], (2, 2))
    return case("no_boxes", graph, [np.full((2, 2), 0.1), boxes], [np.zeros(0), np.zeros((0, 4)), [], []])


@builtin
def gather_out_of_range() -> Case:
    """Must fail: there is no row 5."""
    graph = Graph()
    inputs = [graph.input(F32, (3, 2)), graph.int32(0), graph.input(I32, (1,))]
    graph.apply("GATHER", inputs, [graph.output(F32, (1, 2))])
    return case("gather_out_of_range", graph, [np.ones((3, 2)), [5]], [np.zeros((1, 2))], expect_failure=True)
