"""Vectors of elementwise operations, activations and conversions."""

import numpy as np

from nnhal_tools.conformance.vectors.builtin import register
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.case import Case

F32, F16, Q8, I8 = "TENSOR_FLOAT32", "TENSOR_FLOAT16", "TENSOR_QUANT8_ASYMM", "TENSOR_QUANT8_ASYMM_SIGNED"

RELU = 1


@register
def add_float() -> Case:
    """Return an ADD that broadcasts a row, with a fused RELU."""
    a, b = np.array([[1.5, -2, 3], [4, 5, -6]], np.float32), np.array([[-2, 1, 0.5]], np.float32)
    graph = CaseGraph()
    inputs = [graph.input(F32, a.shape), graph.input(F32, b.shape), graph.int32(RELU)]
    graph.apply("ADD", inputs, [graph.output(F32, a.shape)])
    return make_case("add_float", graph, [a, b], [np.maximum(a + b, 0)])


@register
def add_quant8() -> Case:
    """Return an ADD of three different quantizations. Their scales are powers of two, which avoids rounding."""
    a, b = np.array([0, 10, 100, 254]), np.array([4, 128, 132, 252])
    real = (a - 10) * 0.5 + (b - 128) * 0.25
    graph = CaseGraph()
    inputs = [graph.input(Q8, (4,), 0.5, 10), graph.input(Q8, (4,), 0.25, 128), graph.int32(0)]
    graph.apply("ADD", inputs, [graph.output(Q8, (4,), 1.0, 50)])
    return make_case("add_quant8", graph, [a, b], [np.clip(real + 50, 0, 255)])


def _mul(name: str, *, relaxed: bool) -> Case:
    a = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    graph = CaseGraph()
    inputs = [graph.input(F32, a.shape), graph.constant(F32, [3.0]), graph.int32(0)]
    graph.apply("MUL", inputs, [graph.output(F32, a.shape)])
    return make_case(name, graph, [a], [a * 3], relaxed=relaxed)


@register
def mul_relaxed() -> Case:
    """Return a MUL of float32 that may be computed as float16."""
    return _mul("mul_relaxed", relaxed=True)


@register
def logistic_float16() -> Case:
    """Return a LOGISTIC in half precision."""
    a = np.array([[-4, -1, 0], [0.5, 2, 6]], np.float16)
    graph = CaseGraph()
    graph.apply("LOGISTIC", [graph.input(F16, a.shape)], [graph.output(F16, a.shape)])
    return make_case("logistic_float16", graph, [a], [1 / (1 + np.exp(-a.astype(np.float64)))])


@register
def softmax_float() -> Case:
    """Return a SOFTMAX along the last axis, with beta."""
    a = np.array([[1, 2, 3, 4], [-1, 0, -1, 0]], np.float32)
    powers = np.exp(0.5 * a.astype(np.float64))
    graph = CaseGraph()
    graph.apply("SOFTMAX", [graph.input(F32, a.shape), graph.float32(0.5)], [graph.output(F32, a.shape)])
    return make_case("softmax_float", graph, [a], [powers / powers.sum(axis=1, keepdims=True)])


@register
def quantize_dequantize() -> Case:
    """Return two operations with a quantized value between them, which saturates at the ends of its range."""
    a = np.array([-100, -1.5, 0, 0.5, 3, 100], np.float32)
    steps = np.clip(a / 0.5 + 7, -128, 127)
    graph = CaseGraph()
    between = graph.temporary(I8, a.shape, 0.5, 7)
    graph.apply("QUANTIZE", [graph.input(F32, a.shape)], [between])
    graph.apply("DEQUANTIZE", [between], [graph.output(F32, a.shape)])
    return make_case("quantize_dequantize", graph, [a], [(steps - 7) * 0.5])


@register
def maximum_int32() -> Case:
    """Return a MAXIMUM of integers."""
    a, b = np.array([[1, -5, 7]]), np.array([[3], [-9]])
    graph = CaseGraph()
    inputs = [graph.input("TENSOR_INT32", (1, 3)), graph.input("TENSOR_INT32", (2, 1))]
    graph.apply("MAXIMUM", inputs, [graph.output("TENSOR_INT32", (2, 3))])
    return make_case("maximum_int32", graph, [a, b], [np.maximum(a, b)])


@register
def mul_float() -> Case:
    """Return a MUL by a constant."""
    return _mul("mul_float", relaxed=False)
