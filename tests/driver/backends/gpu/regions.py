"""Regions of random operators of TFLite on float32, whose shapes LiteRT determines."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options

RANDOM_VALUES = (1.0, 5.0, 50.0)
"""Largest values of random inputs."""
_UNARY = (
    *(
        "ABS",
        "CEIL",
        "COS",
        "ELU",
        "EXP",
        "FLOOR",
        "GELU",
        "HARD_SWISH",
        "LEAKY_RELU",
        "LOG",
        "LOGISTIC",
        "NEG",
        "RELU",
    ),
    *("RELU6", "ROUND", "RSQRT", "SIGN", "SIN", "SOFTMAX", "SQRT", "SQUARE", "TANH"),
)
_BINARY = (
    *("ADD", "ATAN2", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "MUL", "POW", "SQUARED_DIFFERENCE", "SUB"),
)
_OPTIONS: dict[str, Any] = {"LEAKY_RELU": {"alpha": 0.2}, "SOFTMAX": {"beta": 1.0}, "GELU": {"approximate": True}}
_TABLES = {"LEAKY_RELU": "LeakyRelu", "SOFTMAX": "Softmax", "GELU": "Gelu"}


def run_litert(data: bytes, inputs: Sequence[AnyArray]) -> list[AnyArray]:
    """Return the outputs of LiteRT's interpreter."""
    engine = _allocated(data)
    for detail, array in zip(engine.get_input_details(), inputs, strict=True):
        engine.set_tensor(detail["index"], array)
    engine.invoke()
    return [np.asarray(engine.get_tensor(detail["index"])) for detail in engine.get_output_details()]


def _allocated(data: bytes) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(model_content=data)
    engine.allocate_tensors()
    return engine


class RandomRegion:
    """Operators on one or two inputs. Each one reads the result of an earlier one, and the last one is the output.

    Attributes:
        data: the TFLite model.
        shapes: shapes of the inputs.
    """

    def __init__(self, seed: int) -> None:
        self._random = random = np.random.default_rng(seed)
        self._shape = tuple(int(size) for size in random.integers(1, 6, random.integers(2, 5)))
        self._inputs = [Tensor(self._shape) for _ in range(random.integers(1, 3))]
        self._operators: list[Op] = []
        self._known: list[Tensor] = [*self._inputs]
        count = random.integers(1, 5)
        while len(self._operators) < count:
            self._add()
        read = [t for op in self._operators for t in op.inputs]
        used = [x for x in self._inputs if any(x is t for t in read)]
        self.shapes = [x.shape for x in used]
        self.data = build(*self._operators, inputs=used)

    def inputs(self, scale: float) -> list[AnyArray]:
        """Return random values of the inputs."""
        return [self._random.uniform(-scale, scale, shape).astype(np.float32) for shape in self.shapes]

    def _add(self) -> None:
        """Add an operator. Its shape is LiteRT's; one that LiteRT refuses is left out."""
        x = self._known[-1] if self._operators else self._inputs[0]
        makers: list[Callable[[Tensor], Op]] = [self._unary, self._binary, self._binary, self._move, self._reduce]
        op = makers[self._random.integers(len(makers))](x)
        read = [t for t in op.inputs if t is not None and t.data is None]
        alone = [t for i, t in enumerate(read) if not any(t is earlier for earlier in read[:i])]
        try:
            (detail,) = _allocated(build(op, inputs=alone)).get_output_details()
        except (RuntimeError, ValueError):
            return
        shape = tuple(map(int, detail["shape"]))
        if shape and 0 not in shape and np.prod(shape) < 5000:
            result = Tensor(shape)
            self._operators.append(replace(op, outputs=[result]))
            self._known.append(result)

    def _unary(self, x: Tensor) -> Op:
        name = str(self._random.choice(_UNARY))
        fields = _OPTIONS.get(name)
        table = None if fields is None else options(_TABLES[name], **fields)
        return Op(name, [x], [Tensor(x.shape)], table, version=2 if name == "GELU" else 1)

    def _binary(self, x: Tensor) -> Op:
        name = str(self._random.choice(_BINARY))
        shape = tuple(size if self._random.random() < 0.7 else 1 for size in x.shape)
        shape = shape[self._random.integers(len(shape)) if self._random.random() < 0.3 else 0 :]
        constant = Tensor(shape, data=self._random.uniform(-2, 2, shape).astype(np.float32))
        others = [t for t in self._known if t.shape == x.shape] if self._random.random() < 0.5 else []
        other = others[self._random.integers(len(others))] if others else constant
        operands = [x, other] if self._random.random() < 0.5 else [other, x]
        has_table = name in ("ADD", "SUB", "MUL", "DIV", "POW")
        return Op(name, operands, [Tensor(x.shape)], options(name.title()) if has_table else None)

    def _move(self, x: Tensor) -> Op:
        rank, random = len(x.shape), self._random
        pads = Tensor((rank, 2), "INT32", random.integers(0, 2, (rank, 2)))
        axis = int(random.integers(rank))
        choices = [
            Op("TRANSPOSE", [x, ints(*random.permutation(rank).tolist())], [Tensor(())], options("Transpose")),
            Op("REVERSE_V2", [x, ints(axis)], [Tensor(())], options("ReverseV2")),
            Op("TILE", [x, ints(*random.integers(1, 3, rank).tolist())], [Tensor(())], options("Tile")),
            Op("PADV2", [x, pads, Tensor((), data=np.float32(1.5))], [Tensor(())], options("PadV2")),
            Op("MIRROR_PAD", [x, pads], [Tensor(())], options("MirrorPad", mode=1)),
            Op("CONCATENATION", [x, x], [Tensor(())], options("Concatenation", axis=axis)),
            Op("GATHER", [x, ints(*random.integers(x.shape[axis], size=2).tolist())], [Tensor(())],
               options("Gather", axis=axis)),
            Op("CUMSUM", [x, Tensor((), "INT32", axis)], [Tensor(())], options("Cumsum")),
        ]  # fmt: skip
        return choices[random.integers(len(choices))]

    def _reduce(self, x: Tensor) -> Op:
        name = str(self._random.choice(["SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"]))
        axis = int(self._random.integers(len(x.shape)))
        return Op(name, [x, ints(axis)], [Tensor(())], options("Reducer", keepDims=True))
