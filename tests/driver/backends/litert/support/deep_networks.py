"""Random deep networks, quantized as a converter does it: with the ranges that their values have on a picture."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from tests.nnhal.tflite.build import Op, Tensor, build, options, schema

SIZE = 24
KINDS = ("UINT8", "INT8", "INT8 per channel", "INT16")
"""Types of activations. INT8 and UINT8 have weights of one scale; INT16 has INT8 weights with a scale per channel."""

_ACTIVATIONS = {"none": 0, "relu": 1, "relu6": 3}
_SAME = schema.Padding.SAME


@dataclass
class Value:
    """A value of a network. `constant` has the real values of weights."""

    shape: tuple[int, ...]
    constant: AnyArray | None = None
    low: float = 0.0
    high: float = 0.0


@dataclass
class Layer:
    """An operator, with options of the schema. `channels` is the axis of the filter with a scale for each channel."""

    name: str
    inputs: list[Value]
    output: Value
    table: tuple[str, dict[str, Any]] = ("", {})
    channels: int = 0


@dataclass
class Network:
    """Layers in order. The first value is a picture [1,H,W,3] in -1..1."""

    generator: np.random.Generator
    layers: list[Layer] = field(default_factory=list)
    picture: Value = field(default_factory=lambda: Value((1, SIZE, SIZE, 3), low=-1, high=1))

    def add(
        self, name: str, inputs: list[Value], shape: tuple[int, ...], table: Any = ("", {}), axis: int = 0
    ) -> Value:
        """Append a layer and return its output."""
        self.layers.append(Layer(name, inputs, Value(shape), table, axis))
        return self.layers[-1].output

    def weights(self, shape: tuple[int, ...], fan_in: int) -> Value:
        """Return weights whose range is not symmetric."""
        values = self.generator.normal(0.1, 1.2, shape) / np.sqrt(fan_in)
        return Value(shape, values.astype(np.float32))

    def convolution(self, x: Value, count: int) -> Value:
        """Append a convolution of a random kind."""
        side, stride = int(self.generator.choice([1, 3])), int(self.generator.choice([1, 1, 2]))
        _, height, width, depth = x.shape
        activation = _ACTIVATIONS[str(self.generator.choice(list(_ACTIVATIONS)))]
        shape = (1, -(-height // stride), -(-width // stride), count)
        window = {"padding": _SAME, "strideW": stride, "strideH": stride, "fusedActivationFunction": activation}
        if count == depth and self.generator.random() < 0.4:
            filter_ = self.weights((1, side, side, depth), side * side)
            table = ("DepthwiseConv2D", {**window, "depthMultiplier": 1})
            return self.add("DEPTHWISE_CONV_2D", [x, filter_, self.bias(count)], shape, table, 3)
        filter_ = self.weights((count, side, side, depth), side * side * depth)
        return self.add("CONV_2D", [x, filter_, self.bias(count)], shape, ("Conv2D", window))

    def bias(self, count: int) -> Value:
        """Return a bias."""
        return Value((count,), self.generator.normal(0, 0.3, count).astype(np.float32))


def random_network(seed: int, depth: int) -> Network:
    """Return a network of convolutions with residuals, joins, poolings and a classifier, about `depth` layers deep."""
    network = Network(np.random.default_rng(seed))
    generator = network.generator
    x = network.convolution(network.picture, 8)
    seen = [x]
    while len(network.layers) < depth:
        kind = generator.choice(["conv", "conv", "conv", "residual", "join", "pool", "gate"])
        same = [value for value in seen if value.shape == x.shape and value is not x]
        if kind == "residual" and same:
            x = network.add("ADD", [x, same[int(generator.integers(len(same)))]], x.shape, ("Add", {}))
        elif kind == "join" and same and x.shape[3] <= 16:
            shape = (*x.shape[:3], 2 * x.shape[3])
            x = network.add("CONCATENATION", [x, same[-1]], shape, ("Concatenation", {"axis": 3}))
        elif kind == "gate" and same:
            gate = network.add("LOGISTIC", [same[-1]], x.shape)
            x = network.add("MUL", [x, gate], x.shape, ("Mul", {}))
        elif kind == "pool" and x.shape[1] > 4:
            window = {"padding": _SAME, "strideW": 1, "strideH": 1, "filterWidth": 2, "filterHeight": 2}
            name = str(generator.choice(["AVERAGE_POOL_2D", "MAX_POOL_2D"]))
            x = network.add(name, [x], x.shape, ("Pool2D", window))
        else:
            x = network.convolution(x, int(generator.choice([x.shape[3], x.shape[3], 12])))
        seen.append(x)
    size = int(np.prod(x.shape))
    flat = network.add("RESHAPE", [x], (1, size), ("Reshape", {"newShape": [1, size]}))
    scores = network.add(
        "FULLY_CONNECTED", [flat, network.weights((10, size), size), network.bias(10)], (1, 10), ("FullyConnected", {})
    )
    network.add("SOFTMAX", [scores], (1, 10), ("Softmax", {"beta": 1.0}))
    return network


def float_file(network: Network) -> tuple[bytes, list[Value]]:
    """Return the network in float32, and the values that are its outputs: all that layers write."""
    tensors: dict[int, Tensor] = {}

    def tensor(value: Value) -> Tensor:
        return tensors.setdefault(id(value), Tensor(value.shape, data=value.constant))

    written = [layer.output for layer in network.layers]
    return _build(network, tensor, written), written


def quantized_file(network: Network, kind: str, *, has_shapes: bool = True) -> bytes:
    """Return the network in a quantized type, given the ranges of its values. Without shapes, inference finds them."""
    type_, is_per_channel = kind.split(maxsplit=1)[0], kind not in ("UINT8", "INT8")
    tensors: dict[int, Tensor] = {}

    def activation(value: Value) -> Tensor:
        softmax = value is network.layers[-1].output
        pool_source = next((e.inputs[0] for e in network.layers if e.output is value and e.name in _SAME_SCALE), None)
        if pool_source is not None:  # the kernels require the scale of the input
            source = tensor(pool_source)
            return Tensor(value.shape, type_, scale=source.scale, zero_point=source.zero_point)
        shape = value.shape if has_shapes or value is network.picture else ()
        is_logistic = any(e.output is value and e.name == "LOGISTIC" for e in network.layers)
        if type_ == "INT16":
            top = max(abs(value.low), abs(value.high)) or 1.0
            scale = 1 / 32768 if softmax or is_logistic else top / 32767
            return Tensor(shape, type_, scale=(float(np.float32(scale)),), zero_point=(0,))
        lowest = 0 if type_ == "UINT8" else -128
        if softmax or is_logistic:
            return Tensor(shape, type_, scale=(1 / 256,), zero_point=(lowest,))
        low, high = min(value.low, 0.0), max(value.high, 0.0)
        scale = (high - low) / 255 or 1.0
        return Tensor(shape, type_, scale=(float(np.float32(scale)),), zero_point=(lowest + round(-low / scale),))

    def tensor(value: Value) -> Tensor:
        if id(value) not in tensors:
            tensors[id(value)] = activation(value)
        return tensors[id(value)]

    def weights(layer: Layer) -> list[Tensor]:
        source, (filter_, bias) = tensor(layer.inputs[0]), layer.inputs[1:]
        assert filter_.constant is not None and bias.constant is not None
        per_channel = is_per_channel and (type_ == "INT16" or layer.name != "FULLY_CONNECTED")
        stored = _quantize_weights(filter_.constant, type_ == "UINT8", layer.channels if per_channel else None)
        scales = tuple(float(np.float32(source.scale[0]) * np.float32(scale)) for scale in stored.scale)
        wide = "INT64" if type_ == "INT16" else "INT32"
        numbers = np.rint(bias.constant / np.array(scales)).astype(np.int64)
        return [stored, Tensor(bias.shape, wide, numbers, scales, (0,) * len(scales))]

    operators = []
    for layer in network.layers:
        constants = weights(layer) if len(layer.inputs) == 3 else []
        inputs = [tensor(value) for value in layer.inputs[: 1 if constants else None]] + constants
        table = options(layer.table[0], **layer.table[1]) if layer.table[0] else None
        if (
            layer.name == "CONCATENATION" and type_ != "UINT8"
        ):  # the kernels require one scale, so converters insert these
            out = tensor(layer.output)
            for i, source in enumerate(inputs):
                inputs[i] = Tensor(source.shape, type_, scale=out.scale, zero_point=out.zero_point)
                operators.append(Op("QUANTIZE", [source], [inputs[i]]))
        operators.append(Op(layer.name, inputs, [tensor(layer.output)], table))
    return build(*operators, inputs=[tensor(network.picture)])


_SAME_SCALE = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE")


def _quantize_weights(values: AnyArray, is_asymmetric: bool, axis: int | None) -> Tensor:
    if is_asymmetric:
        low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        scale = float(np.float32((high - low) / 254))
        zero = round(1 - low / scale)
        return Tensor(values.shape, "UINT8", np.clip(np.rint(values / scale) + zero, 1, 255), (scale,), (zero,))
    if axis is None:
        scale = float(np.float32(np.abs(values).max() / 127))
        return Tensor(values.shape, "INT8", np.rint(values / scale), (scale,), (0,))
    axes = tuple(i for i in range(values.ndim) if i != axis)
    scales = (np.abs(values).max(axes) / 127).astype(np.float32)
    shaped = np.expand_dims(scales, axes)
    return Tensor(values.shape, "INT8", np.rint(values / shaped), tuple(map(float, scales)), (0,) * len(scales), axis)


def _build(network: Network, tensor: Any, outputs: list[Value]) -> bytes:
    operators = [
        Op(
            layer.name,
            [tensor(value) for value in layer.inputs],
            [tensor(layer.output)],
            options(layer.table[0], **layer.table[1]) if layer.table[0] else None,
        )
        for layer in network.layers
    ]
    return build(*operators, inputs=[tensor(network.picture)], outputs=[tensor(value) for value in outputs])
