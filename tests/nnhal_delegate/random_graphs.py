"""Random graphs of TensorFlow Lite operators: branches, joins, several inputs and outputs, floats and 8 bits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from tests.nnhal.tflite.build import Op, Tensor, build, ints, options

_SCALE, _ZERO_POINT = 0.05, -3
UNARY = ("ABS", "RELU", "RELU6", "TANH", "LOGISTIC", "NEG", "ELU", "SQUARE", "HARD_SWISH", "LEAKY_RELU", "FLOOR", "EXP")
BINARY = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "MAXIMUM": "MaximumMinimum", "MINIMUM": "MaximumMinimum"}


def random_graph(seed: int) -> bytes:
    """Return a .tflite file. The same seed gives the same file."""
    return _Generator(Random(seed)).generate()


@dataclass
class _Generator:
    random: Random
    operators: list[Op] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    floats: list[Tensor] = field(default_factory=list)

    def generate(self) -> bytes:
        for _ in range(self.random.randint(1, 3)):
            shape = (1, self.random.choice((4, 6)), self.random.choice((4, 6)), self.random.choice((2, 3, 4)))
            self.inputs.append(Tensor(shape, name=f"input {len(self.inputs)}"))
        self.floats += self.inputs
        for _ in range(self.random.randint(3, 14)):
            self.random.choice(STEPS)(self)
        read = [t for op in self.operators for t in op.inputs]
        written = [t for op in self.operators for t in op.outputs]
        outputs = [t for t in written if not any(t is r for r in read) or self.random.random() < 0.1]
        inputs = [t for t in self.inputs if any(t is r for r in read)]
        return build(*self.operators, inputs=inputs, outputs=outputs)

    def pick(self, rank: int | None = None) -> Tensor:
        found = [t for t in self.floats if rank in (None, len(t.shape))]
        return self.random.choice(found[-4:] if self.random.random() < 0.7 else found)

    def constant(self, *shape: int) -> Tensor:
        values = np.random.default_rng(self.random.randrange(2**32)).uniform(-0.5, 0.5, shape)
        return Tensor(shape, data=values.astype(np.float32))

    def add(self, name: str, inputs: list[Tensor], *shapes: tuple[int, ...], table: object = None) -> None:
        outputs = [Tensor(shape, name=f"{name} {len(self.operators)} {i}") for i, shape in enumerate(shapes)]
        self.operators.append(Op(name, inputs, outputs, table))
        self.floats += outputs


def _unary(graph: _Generator) -> None:
    name, source = graph.random.choice(UNARY), graph.pick()
    table = options("LeakyRelu", alpha=0.1) if name == "LEAKY_RELU" else None
    graph.add(name, [source], source.shape, table=table)


def _binary(graph: _Generator) -> None:
    name, first = graph.random.choice(list(BINARY)), graph.pick()
    same = [t for t in graph.floats if t.shape == first.shape]
    second = graph.random.choice([*same, graph.constant(first.shape[-1])])
    table = options(BINARY[name])
    if hasattr(table, "fusedActivationFunction"):
        table.fusedActivationFunction = graph.random.choice((0, 1, 3))
    graph.add(name, [first, second], first.shape, table=table)


def _convolution(graph: _Generator) -> None:
    source, channels, stride = graph.pick(4), graph.random.choice((2, 3)), graph.random.choice((1, 2))
    size = [-(-length // stride) for length in source.shape[1:3]]
    table = options("Conv2D", strideW=stride, strideH=stride, fusedActivationFunction=graph.random.choice((0, 1)))
    weights = graph.constant(channels, 3, 3, source.shape[3])
    graph.add("CONV_2D", [source, weights, graph.constant(channels)], (1, *size, channels), table=table)


def _depthwise(graph: _Generator) -> None:
    source = graph.pick(4)
    table = options("DepthwiseConv2D", strideW=1, strideH=1, depthMultiplier=1)
    weights, bias = graph.constant(1, 3, 3, source.shape[3]), graph.constant(source.shape[3])
    graph.add("DEPTHWISE_CONV_2D", [source, weights, bias], source.shape, table=table)


def _pool(graph: _Generator) -> None:
    source = graph.pick(4)
    size = [-(-length // 2) for length in source.shape[1:3]]
    table = options("Pool2D", strideW=2, strideH=2, filterWidth=2, filterHeight=2)
    graph.add(
        graph.random.choice(("MAX_POOL_2D", "AVERAGE_POOL_2D")), [source], (1, *size, source.shape[3]), table=table
    )


def _concatenate(graph: _Generator) -> None:
    first = graph.pick(4)
    second = graph.random.choice([t for t in graph.floats if len(t.shape) == 4 and t.shape[:3] == first.shape[:3]])
    shape = (*first.shape[:3], first.shape[3] + second.shape[3])
    graph.add("CONCATENATION", [first, second], shape, table=options("Concatenation", axis=3))


def _flatten(graph: _Generator) -> None:
    source = graph.pick()
    shape = (1, int(np.prod(source.shape)))
    graph.add("RESHAPE", [source, ints(*shape)], shape, table=options("Reshape", newShape=list(shape)))


def _dense(graph: _Generator) -> None:
    source = graph.pick()
    shape, units = (1, int(np.prod(source.shape))), graph.random.choice((4, 8))
    weights, bias = graph.constant(units, shape[1]), graph.constant(units)
    graph.add("FULLY_CONNECTED", [source, weights, bias], (1, units), table=options("FullyConnected"))


def _softmax(graph: _Generator) -> None:
    source = graph.pick()
    graph.add("SOFTMAX", [source], source.shape, table=options("Softmax", beta=1.0))


def _split(graph: _Generator) -> None:
    source = graph.pick(4)
    part = (1, source.shape[1], source.shape[2], source.shape[3])
    if part[1] % 2 == 0:
        half = (1, part[1] // 2, *part[2:])
        axis = Tensor((), "INT32", np.array(1))
        graph.add("SPLIT", [axis, source], half, half, table=options("Split", numSplits=2))


def _transpose(graph: _Generator) -> None:
    source = graph.pick(4)
    n, h, w, c = source.shape
    graph.add("TRANSPOSE", [source, ints(0, 2, 1, 3)], (n, w, h, c), table=options("Transpose"))


def _pad(graph: _Generator) -> None:
    source = graph.pick(4)
    n, h, w, c = source.shape
    paddings = Tensor((4, 2), "INT32", np.array([[0, 0], [1, 0], [0, 1], [0, 0]]))
    graph.add("PAD", [source, paddings], (n, h + 1, w + 1, c), table=options("Pad"))


def _mean(graph: _Generator) -> None:
    source = graph.pick(4)
    graph.add("MEAN", [source, ints(1, 2)], (1, source.shape[3]), table=options("Reducer", keepDims=False))


def _quantized(graph: _Generator) -> None:
    """Quantize, compute in 8 bits, and dequantize."""
    source = graph.pick()
    quantized, result = (Tensor(source.shape, "INT8", None, (_SCALE,), (_ZERO_POINT,)) for _ in range(2))
    graph.operators.append(Op("QUANTIZE", [source], [quantized]))
    graph.operators.append(Op("ADD", [quantized, quantized], [result], options("Add")))
    graph.add("DEQUANTIZE", [result], source.shape)


STEPS: tuple[Callable[[_Generator], None], ...] = (
    _unary, _unary, _binary, _binary, _convolution, _depthwise, _pool, _concatenate, _flatten, _dense, _softmax, _split,
    _transpose, _pad, _mean, _quantized,
)  # fmt: skip
