"""Models for the checks of caching: a large and a small MobileNet, and long chains. numpy computes their outputs.

They resemble the two MobileNets of the vendor test suite that the checklist names, one of float32 and one of quant8.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from nnhal.types import AnyArray
from nnhal_tools.conformance.vectors.builtin.reference import Floats, convolve, convolve_depthwise
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.case import Case

F32, Q8, I32 = "TENSOR_FLOAT32", "TENSOR_QUANT8_ASYMM", "TENSOR_INT32"
SAME, VALID, RELU6 = 1, 2, 3

NUMBER_KINDS = ("float32", "quant8")

CHAIN_LENGTH = 100
"""Number of operations of a chain."""

Blocks = tuple[tuple[int, int], ...]
"""For each block the stride of the depthwise convolution and the output channels of the pointwise one."""

LARGE: Blocks = ((1, 16), (2, 32), (1, 32), (2, 64), (1, 64), (2, 128), *[(1, 128)] * 5, (2, 256), (1, 256))
SMALL: Blocks = ((1, 8), (2, 16), (1, 16))


class _FloatNumbers:
    """Writer of the operands of a float32 MobileNet."""

    type = F32

    def input(self, graph: CaseGraph, image: Floats) -> tuple[int, Floats]:
        return graph.input(F32, (1, *image.shape)), image.astype(np.float32).astype(float)

    def weights(self, graph: CaseGraph, filters: Floats, bias: Floats) -> tuple[int, int, Floats, Floats]:
        rounded = filters.astype(np.float32), bias.astype(np.float32)
        w, b = (graph.constant(F32, array, pooled=True) for array in rounded)
        return w, b, rounded[0].astype(float), rounded[1].astype(float)

    def activation(self, graph: CaseGraph, value: Floats) -> tuple[int, Floats]:
        return graph.temporary(F32, (1, *value.shape)), value

    def stored(self, value: Floats) -> Floats:
        return value

    def output(self, graph: CaseGraph, value: Floats) -> tuple[int, Floats]:
        return graph.output(F32, value.shape), value


class _Quant8Numbers:
    """Writer of the operands of a quant8 MobileNet. Values are real numbers after quantization.

    No scale is a power of two, so that no value lies half way between two steps.
    """

    type = Q8
    value_scale, value_zero = float(np.float32(0.0471)), 8
    weight_scale, weight_zero = float(np.float32(0.0113)), 121
    bias_scale = float(np.float32(0.0471) * np.float32(0.0113))

    def input(self, graph: CaseGraph, image: Floats) -> tuple[int, Floats]:
        return graph.input(Q8, (1, *image.shape), self.value_scale, self.value_zero), self._rounded(image)

    def weights(self, graph: CaseGraph, filters: Floats, bias: Floats) -> tuple[int, int, Floats, Floats]:
        steps = np.clip(np.round(filters / self.weight_scale) + self.weight_zero, 0, 255)
        biases = np.round(bias / self.bias_scale)
        w = graph.constant(Q8, steps, self.weight_scale, self.weight_zero, pooled=True)
        b = graph.constant(I32, biases, self.bias_scale, pooled=True)
        return w, b, (steps - self.weight_zero) * self.weight_scale, biases * self.bias_scale

    def activation(self, graph: CaseGraph, value: Floats) -> tuple[int, Floats]:
        index = graph.temporary(Q8, (1, *value.shape), self.value_scale, self.value_zero)
        return index, self._rounded(value)

    def _rounded(self, value: Floats) -> Floats:
        return (self.stored(value) - self.value_zero) * self.value_scale

    def stored(self, value: Floats) -> Floats:
        steps: Floats = np.clip(np.floor(value / self.value_scale + 0.5) + self.value_zero, 0, 255)
        return steps

    def output(self, graph: CaseGraph, value: Floats) -> tuple[int, Floats]:
        return graph.output(Q8, value.shape, 1 / 256), np.clip(np.floor(value * 256 + 0.5), 0, 255)


Numbers = _FloatNumbers | _Quant8Numbers


class _Network:
    """MobileNet under construction, with its last operand and the value of that operand, [H, W, C]."""

    def __init__(self, numbers: Numbers, size: int) -> None:
        self.rng = np.random.default_rng(size)
        self.graph, self.numbers = CaseGraph(), numbers
        image = self.rng.uniform(0, 4, (size, size, 3))
        self.last, self.value = numbers.input(self.graph, image)
        self.image = numbers.stored(self.value)

    def convolution(self, channels: int, size: int, stride: int, activation: int = RELU6) -> None:
        """Add a CONV_2D."""
        shape = (channels, size, size, self.value.shape[2])
        self._apply("CONV_2D", shape, size * size * shape[3], channels, stride, activation, convolve)

    def depthwise(self, stride: int) -> None:
        """Add a DEPTHWISE_CONV_2D of 3 × 3."""
        channels = self.value.shape[2]
        self._apply("DEPTHWISE_CONV_2D", (1, 3, 3, channels), 9, channels, stride, RELU6, _depthwise)

    def _apply(
        self,
        operation: str,
        shape: tuple[int, ...],
        fan_in: int,
        channels: int,
        stride: int,
        activation: int,
        compute: Callable[..., Floats],
    ) -> None:
        filters = self.rng.normal(0, (2 / fan_in) ** 0.5, shape)
        w, b, weights, bias = self.numbers.weights(self.graph, filters, self.rng.normal(0.2, 0.1, channels))
        value = compute(self.value, weights, bias, stride, _same_padding(self.value.shape[0], shape[1], stride))
        value = np.clip(value, 0, 6) if activation else value
        multiplier = [1] if operation == "DEPTHWISE_CONV_2D" else []
        numbers = self.graph.int32s(SAME, stride, stride, *multiplier, activation)
        inputs = [self.last, w, b, *numbers]
        self.last, self.value = self.numbers.activation(self.graph, value)
        self.graph.apply(operation, inputs, [self.last])

    def average(self) -> None:
        """Add an AVERAGE_POOL_2D of the whole image."""
        size = self.value.shape[0]
        numbers = self.graph.int32s(VALID, 1, 1, size, size, 0)
        inputs = [self.last, *numbers]
        value = self.value.mean(axis=(0, 1), keepdims=True)
        self.last, self.value = self.numbers.activation(self.graph, value)
        self.graph.apply("AVERAGE_POOL_2D", inputs, [self.last])

    def flatten(self) -> None:
        """Add a RESHAPE to one row."""
        row = self.value.reshape(-1)
        inputs = [self.last, self.graph.constant(I32, [1, row.size])]
        self.last, self.value = self.numbers.activation(self.graph, row)
        self.graph.apply("RESHAPE", inputs, [self.last])

    def softmax(self) -> AnyArray:
        """Add a SOFTMAX as the output, and return its value."""
        output, expected = self.numbers.output(self.graph, self._probabilities())
        self.graph.apply("SOFTMAX", [self.last, self.graph.float32(1.0)], [output])
        return expected

    def ranking(self) -> list[AnyArray]:
        """Add a SOFTMAX and a TOPK_V2 of all classes, with two outputs, and return their values. For float32."""
        probabilities = self._probabilities()
        between = self.graph.temporary(F32, probabilities.shape)
        self.graph.apply("SOFTMAX", [self.last, self.graph.float32(1.0)], [between])
        order = np.argsort(-probabilities)
        outputs = [self.graph.output(type_, order.shape) for type_ in (F32, I32)]
        self.graph.apply("TOPK_V2", [between, self.graph.int32(order.size)], outputs)
        return [np.take_along_axis(probabilities, order, axis=1), order]

    def _probabilities(self) -> Floats:
        powers = np.exp(self.value - self.value.max())
        probabilities: Floats = (powers / powers.sum())[None]
        return probabilities


def _depthwise(image: Floats, filters: Floats, *rest: object) -> Floats:
    return convolve_depthwise(image, filters[0], *rest)  # type: ignore[arg-type]


def _same_padding(size: int, window: int, stride: int) -> tuple[int, int, int, int]:
    """Return the SAME padding, with the larger half at the bottom and right."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2, total // 2, total - total // 2


@cache
def mobilenet(kind: str) -> Case:
    """Return a MobileNet: 31 operations and 210,000 weights in float32, 11 operations and 1,000 weights in quant8."""
    network = _build_network(kind)
    expected = network.softmax()
    return _with_tolerance(make_case(f"mobilenet_{kind}", network.graph, [network.image[None]], [expected]), 3)


@cache
def ranking_mobilenet(kind: str) -> Case:
    """Return a float32 MobileNet with a TOPK_V2 at its end.

    Few accelerators support TOPK_V2, so that they need another backend for it.
    """
    network = _build_network(kind)
    expected = network.ranking()
    return make_case(f"ranking_{kind}", network.graph, [network.image[None]], expected)


def _build_network(kind: str) -> _Network:
    size, blocks, classes = {"float32": (32, LARGE, 10), "quant8": (16, SMALL, 5)}[kind]
    network = _Network(_FloatNumbers() if kind == "float32" else _Quant8Numbers(), size)
    network.convolution(8, 3, 2)
    for stride, channels in blocks:
        network.depthwise(stride)
        network.convolution(channels, 1, 1)
    network.average()
    network.convolution(classes, 1, 1, activation=0)
    network.flatten()
    return network


@cache
def operation_chain(operation: str, kind: str) -> Case:
    """Return a chain of 100 MULs or ADDs, each with a constant of its own. The input is 1 (checklist 7.4)."""
    type_, scale = (Q8, 1.0) if kind == "quant8" else (F32, 0.0)
    constant, constant_scale = (2, 0.5) if (operation, kind) == ("MUL", "quant8") else (1, scale)
    graph = CaseGraph()
    activation = graph.int32(0)
    constants = [graph.constant(type_, [constant], constant_scale) for _ in range(CHAIN_LENGTH)]
    graph.chain(type_, (1,), [(operation, [index, activation]) for index in constants], scale)
    expected = 1 + CHAIN_LENGTH if operation == "ADD" else 1
    return _with_tolerance(make_case(f"chain_{operation.lower()}_{kind}", graph, [[1]], [[expected]]), 1)


def _with_tolerance(case: Case, steps: int) -> Case:
    """Set the tolerance of quant8 outputs to a number of steps (checklist 3.8), and return the case."""
    for output in case.data["outputs"]:
        if "quant8" in case.name:
            output["atol"] = steps
    return case
