"""CpuAcc against CpuRef on random graphs: operations that read one another, partly off the engine, several outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.samples import F16, F32, I32, U8
from tests.driver.backends.litert.test_differential import hold_equal, run
from tests.driver.one_operation import sample, tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

KINDS = (F32, F16, U8, T.TENSOR_QUANT8_ASYMM_SIGNED)
SCALE = 0.1
"""Of every quantised tensor, so that an error of one step stays one."""


@dataclass
class Maker:
    """A graph in the making. All tensors are [batches, height, width, channels]."""

    draw: st.DrawFn
    operands: list[Operand] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    images: list[int] = field(default_factory=list)

    def add(self, operand: Operand, lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE) -> int:
        self.operands.append(Operand(operand.type, operand.dimensions, operand.scale, operand.zero_point, lifetime))
        return len(self.operands) - 1

    def constant(self, operand: Operand, value: object) -> int:
        raw = np.asarray(value).astype(DTYPES[operand.type])
        location = DataLocation(0, len(self.data), raw.nbytes)
        self.data += raw.tobytes() + bytes(-raw.nbytes % 4)
        made = self.add(operand, OperandLifeTime.CONSTANT_COPY)
        old = self.operands[made]
        self.operands[made] = Operand(old.type, old.dimensions, old.scale, old.zero_point, old.lifetime, location)
        return made

    def number(self, value: int) -> int:
        return self.constant(Operand(T.INT32), value)

    def vector(self, value: object) -> int:
        return self.constant(tensor(I32, np.shape(np.asarray(value))), value)

    def emit(self, type_: Op, inputs: Sequence[int], kind: T, shape: Sequence[int]) -> None:
        made = self.add(quantized(kind, shape))
        self.operations.append(Operation(type_, tuple(inputs), (made,)))
        self.images.append(made)

    def model(self, inputs: Sequence[int]) -> Model:
        outputs = tuple(i for i in self.images if i not in inputs and self.draw(st.booleans()))
        outputs = outputs or (self.images[-1],)
        for i in outputs:
            old = self.operands[i]
            lifetime = OperandLifeTime.SUBGRAPH_OUTPUT
            self.operands[i] = Operand(old.type, old.dimensions, old.scale, old.zero_point, lifetime)
        main = Subgraph(tuple(self.operands), tuple(self.operations), tuple(inputs), outputs)
        return Model(main, operand_values=bytes(self.data))


def quantized(kind: T, shape: Sequence[int]) -> Operand:
    return tensor(kind, shape) if kind in (F32, F16) else tensor(kind, shape, SCALE, 128 if kind == U8 else 0)


Step = Callable[[Maker, int, T, tuple[int, ...]], None]


def relu(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    make.emit(make.draw(st.sampled_from([Op.RELU, Op.RELU6, Op.RELU1])), [x], kind, shape)


def add(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    others = [i for i in make.images if (make.operands[i].type, make.operands[i].dimensions) == (kind, shape)]
    other = make.draw(st.sampled_from(others))
    make.emit(make.draw(st.sampled_from([Op.ADD, Op.SUB])), [x, other, make.number(0)], kind, shape)


def extreme(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    one = make.constant(quantized(kind, (1, 1, 1, shape[3])), np.arange(shape[3]))
    make.emit(make.draw(st.sampled_from([Op.MAXIMUM, Op.MINIMUM])), [x, one], kind, shape)


def convolution(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    count = make.draw(st.integers(1, 3))
    floats = kind in (F32, F16)
    random = np.random.default_rng(make.draw(st.integers(0, 999)))
    wide = (count, 1, 1, shape[3])
    weights = tensor(kind, wide) if floats else tensor(kind, wide, 0.01, 128 if kind == U8 else 0)
    product = float(np.float32(SCALE) * np.float32(0.01))
    bias = tensor(kind, (count,)) if floats else tensor(I32, (count,), product)
    arguments = [
        make.constant(each, np.abs(sample(random, each)) if floats else sample(random, each))
        for each in (weights, bias)
    ]
    window = [make.number(n) for n in (2, 1, 1, 0)]
    make.emit(Op.CONV_2D, [x, *arguments, *window], kind, (*shape[:3], count))


def pool(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    window = [make.number(n) for n in (1, 1, 1, 2, 2, 0)]
    make.emit(make.draw(st.sampled_from([Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D])), [x, *window], kind, shape)


def transpose(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    make.emit(Op.TRANSPOSE, [x, make.vector([0, 2, 1, 3])], kind, (shape[0], shape[2], shape[1], shape[3]))


def reshape(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    wanted = (1, shape[0] * shape[1], shape[2], shape[3])
    make.emit(Op.RESHAPE, [x, make.vector(wanted)], kind, wanted)


def concatenation(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    make.emit(Op.CONCATENATION, [x, x, make.number(3)], kind, (*shape[:3], 2 * shape[3]))


def mean(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    make.emit(Op.MEAN, [x, make.vector([1, 2]), make.number(1)], kind, (shape[0], 1, 1, shape[3]))


def pad(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    make.emit(
        Op.PAD,
        [x, make.vector([[0, 0], [1, 0], [0, 1], [0, 0]])],
        kind,
        (shape[0], shape[1] + 1, shape[2] + 1, shape[3]),
    )


def other_kind(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    if kind in (F32, F16):
        make.emit(Op.QUANTIZE, [x], make.draw(st.sampled_from(KINDS[2:])), shape)
    else:
        make.emit(Op.DEQUANTIZE, [x], make.draw(st.sampled_from(KINDS[:2])), shape)


def reverse(make: Maker, x: int, kind: T, shape: tuple[int, ...]) -> None:
    make.emit(Op.REVERSE, [x, make.vector([1])], kind, shape)


STEPS: tuple[Step, ...] = (
    relu, add, extreme, convolution, pool, transpose, reshape, concatenation, mean, pad, other_kind, reverse,
)  # fmt: skip


@st.composite
def models(draw: st.DrawFn) -> tuple[Model, list[AnyArray]]:
    make, inputs, arrays = Maker(draw), list[int](), list[AnyArray]()
    for _ in range(draw(st.integers(1, 2))):
        shape = tuple(draw(st.integers(1, 3)) for _ in range(4))
        operand = quantized(draw(st.sampled_from(KINDS)), shape)
        inputs.append(make.add(operand, OperandLifeTime.SUBGRAPH_INPUT))
        arrays.append(sample(np.random.default_rng(draw(st.integers(0, 999))), operand))
        make.images.append(inputs[-1])
    for _ in range(draw(st.integers(3, 12))):
        x = draw(st.sampled_from(make.images[-3:]))
        operand = make.operands[x]
        draw(st.sampled_from(STEPS))(make, x, T(operand.type), operand.dimensions)
    return make.model(inputs), arrays


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(given_=models())
def test_graph(given_: tuple[Model, list[AnyArray]]) -> None:
    model, arrays = given_
    expected = run(model, arrays, "CpuRef")[1]
    placed, found = run(model, arrays, "CpuAcc", "CpuRef")
    assert placed == {"CpuAcc"}
    steps = 2 * len(model.main.operations)
    quantised = any(operand.scale for operand in model.main.operands)
    for a, b in zip(found, expected, strict=True):
        if b.dtype.kind == "f":
            # a step of a quantised value that a DEQUANTIZE made real
            np.testing.assert_allclose(
                a.astype(np.float64), b.astype(np.float64), rtol=1e-2, atol=steps * SCALE if quantised else 2e-2
            )
        else:
            hold_equal(a, b, steps)
