"""Time and estimate of single operations on large tensors, on CpuRef: do both agree, and could the operation stop?

`python -m tests.benchmark.estimates [NAME ...]` runs the cases whose names begin so, by default all of them with random
sizes. It prints the processor time, the longest time between two checks and the estimate, and marks operations that
take more than ten times their estimate (UNDERESTIMATED), or do not look at the check for 200 ms (LONG).
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from nnhal.types import DTYPES, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.division import DividedCall
from nnhal_driver.backends.reference.kernel import KERNELS
from nnhal_driver.compilation.cost import estimate_duration_ns
from nnhal_driver.graph import build_graphs
from nnhal_driver.operations import infer
from tests.driver.one_operation import Value, boolean, float32, int32, int_tensor, model_of, tensor

F32, U8, I32, B8 = T.TENSOR_FLOAT32, T.TENSOR_QUANT8_ASYMM, T.TENSOR_INT32, T.TENSOR_BOOL8
Case = tuple[Op, Sequence[Value], Sequence[Operand]]
RANDOM = np.random.default_rng(0)
LONG_S, FACTOR = 0.2, 10


def values(shape: Sequence[int], type_: T = F32, scale: float = 0.0, zero_point: int = 0) -> Value:
    """Return a tensor of random values, which repeat after 2^20."""
    count = min(int(np.prod(shape)), 2**20)
    some = 3 * RANDOM.standard_normal(count) if type_ == F32 else RANDOM.integers(0, 100, count)
    return tensor(type_, shape, scale, zero_point), np.resize(some.astype(DTYPES[type_]), shape)


def stored(*shape: int) -> Value:
    """Return a quantized tensor of random values."""
    return values(shape, U8, 0.1, 3)


def floats(*shape: int) -> Value:
    """Return a tensor of random floats."""
    return values(shape)


def boxes(count: int, classes: int = 1) -> Value:
    """Return random boxes in the unit square."""
    corners = np.sort(RANDOM.random((count, 4)).astype(np.float32), axis=1)
    return tensor(F32, (count, 4 * classes)), np.tile(corners, (1, classes))


def indices(count: int, end: int) -> Value:
    """Return random indices below `end`."""
    return tensor(I32, (count,)), RANDOM.integers(0, end, count)


def size(exponent: int) -> int:
    """Return a random size between 2^exponent and half of it."""
    return int(RANDOM.integers(2 ** (exponent - 1), 2**exponent))


OUT, OUT_I32 = Operand(F32), Operand(I32)
OUT_U8 = tensor(U8, (), 0.1, 3)


def _same(*counts: int) -> list[int]:
    return [size(count) for count in counts]


def elementwise(name: str, arguments: int, *more: Value, output: Operand = OUT) -> Callable[[], Case]:
    """Return a case of an elementwise operation."""

    def case() -> Case:
        count = size(25)
        return Op[name], [*(floats(count) for _ in range(arguments)), *more], [output]

    return case


def _topk(k: int) -> Case:
    count = size(24)
    return Op.TOPK_V2, [floats(count), int32(min(k, count))], [OUT, OUT_I32]


def _gather() -> Case:
    rows, columns, count = _same(10, 13, 12)
    return Op.GATHER, [floats(rows, columns), int32(0), indices(count, rows)], [OUT]


def _convolution() -> Case:
    side, depth = _same(9, 6)
    filter_ = floats(depth, 3, 3, depth)
    return Op.CONV_2D, [floats(1, side, side, depth), filter_, floats(depth), *map(int32, (1, 1, 1, 0))], [OUT]


def _matmul() -> Case:
    rows, depth, columns = _same(12, 12, 11)
    return Op.BATCH_MATMUL, [floats(1, rows, depth), floats(1, depth, columns), *[boolean(False)] * 2], [OUT]


def _rnn() -> Case:
    steps, batches, inputs, units = _same(9, 6, 8, 9)
    cell = [floats(units, inputs), floats(units, units), floats(units), floats(batches, units)]
    return Op.UNIDIRECTIONAL_SEQUENCE_RNN, [floats(steps, batches, inputs), *cell, int32(0), int32(1)], [OUT]


def _suppression() -> Case:
    count = size(17)
    numbers = [float32(-9), int32(8), int32(0), float32(0.5), float32(1), float32(0)]
    inputs = [floats(count, 2), boxes(count, 2), int_tensor(np.zeros(count)), *numbers]
    return Op.BOX_WITH_NMS_LIMIT, inputs, [OUT, OUT, OUT_I32, OUT_I32]


def _proposals() -> Case:
    side = size(10)
    image = tensor(F32, (1, 2)), np.array([[9e3, 9e3]])
    numbers = [float32(1), float32(1), int32(2**21), int32(4), float32(0.5), float32(0), boolean(False)]
    inputs = [floats(1, side, side, 4), floats(1, side, side, 16), boxes(4), image, *numbers]
    return Op.GENERATE_PROPOSALS, inputs, [OUT, OUT, OUT_I32]


def _regions(type_: Op, *more: Value) -> Case:
    side = size(11)
    region = tensor(F32, (2, 4)), np.tile([0, 0, side - 1, side - 1], (2, 1))
    sizes = [int_tensor([0, 0]), int32(2), int32(2), float32(1), float32(1)]
    return type_, [floats(1, side, side, 8), region, *sizes, *more, boolean(False)], [OUT]


def _resize() -> Case:
    flags = [boolean(False)] * 3
    return Op.RESIZE_BILINEAR, [floats(1, 64, 64, 4), int32(size(12)), int32(size(12)), *flags], [OUT]


CASES: dict[str, Callable[[], Case]] = {
    **{name: elementwise(name, 2, int32(0)) for name in ("ADD", "SUB", "MUL", "DIV")},
    **{name: elementwise(name, 2) for name in ("POW", "MAXIMUM", "PRELU")},
    **{name: elementwise(name, 2, output=Operand(B8)) for name in ("EQUAL", "LESS")},
    **{name: elementwise(name, 1) for name in ("EXP", "LOG", "SIN", "SQRT", "RSQRT", "TANH", "LOGISTIC", "RELU")},
    "CAST": elementwise("CAST", 1, output=OUT_I32),
    "QUANTIZE": elementwise("QUANTIZE", 1, output=OUT_U8),
    "ADD quantized": lambda: (Op.ADD, [stored(2**25), stored(2**25), int32(0)], [tensor(U8, (), 0.2, 0)]),
    "MUL quantized": lambda: (Op.MUL, [stored(2**25), stored(2**25), int32(0)], [tensor(U8, (), 0.2, 0)]),
    "SOFTMAX": lambda: (Op.SOFTMAX, [floats(*_same(13, 12)), float32(1), int32(-1)], [OUT]),
    "SOFTMAX of columns": lambda: (Op.SOFTMAX, [floats(*_same(13, 12)), float32(1), int32(0)], [OUT]),
    "SOFTMAX quantized": lambda: (Op.SOFTMAX, [stored(*_same(13, 11)), float32(1)], [tensor(U8, (), 1 / 256)]),
    "LOG_SOFTMAX": lambda: (Op.LOG_SOFTMAX, [floats(*_same(17, 7)), float32(1), int32(-1)], [OUT]),
    "REDUCE_SUM": lambda: (Op.REDUCE_SUM, [floats(size(26)), int_tensor([0]), boolean(True)], [OUT]),
    "REDUCE_PROD": lambda: (Op.REDUCE_PROD, [floats(*_same(13, 12)), int_tensor([0]), boolean(True)], [OUT]),
    "MEAN": lambda: (Op.MEAN, [floats(*_same(13, 12)), int_tensor([1]), int32(1)], [OUT]),
    "ARGMAX": lambda: (Op.ARGMAX, [floats(size(26)), int32(0)], [OUT_I32]),
    "L2_NORMALIZATION": lambda: (Op.L2_NORMALIZATION, [floats(*_same(13, 12)), int32(0)], [OUT]),
    "CONCATENATION": lambda: (Op.CONCATENATION, [floats(size(25)), floats(size(25)), int32(0)], [OUT]),
    "TILE": lambda: (Op.TILE, [floats(1), int_tensor([size(27)])], [OUT]),
    "PAD": lambda: (Op.PAD, [floats(*_same(12, 12)), int_tensor([[5, size(12)], [3, 4]])], [OUT]),
    "TRANSPOSE": lambda: (Op.TRANSPOSE, [floats(*_same(13, 13)), int_tensor([1, 0])], [OUT]),
    "GATHER": _gather,
    "RANDOM_MULTINOMIAL": lambda: (
        Op.RANDOM_MULTINOMIAL,
        [floats(1, 64), int32(size(24)), int_tensor([1, 2])],
        [OUT_I32],
    ),
    "LSH_PROJECTION": lambda: (
        Op.LSH_PROJECTION,
        [floats(64, 16), indices(2**13, 2**13), floats(2**13), int32(2)],
        [OUT_I32],
    ),
    "TOPK_V2 few": lambda: _topk(1000),
    "TOPK_V2 all": lambda: _topk(2**24),
    "RESIZE_BILINEAR": _resize,
    "CONV_2D": _convolution,
    "BATCH_MATMUL": _matmul,
    "AVERAGE_POOL_2D": lambda: (
        Op.AVERAGE_POOL_2D,
        [floats(1, *_same(11, 11), 8), *map(int32, (1, 1, 1, 5, 5, 0))],
        [OUT],
    ),
    "LOCAL_RESPONSE_NORMALIZATION": lambda: (
        Op.LOCAL_RESPONSE_NORMALIZATION,
        [floats(1, 256, 256, 256), int32(100), *map(float32, (1, 1, 0.5))],
        [OUT],
    ),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
    "BOX_WITH_NMS_LIMIT": _suppression,
    "GENERATE_PROPOSALS": _proposals,
    "ROI_ALIGN": lambda: _regions(Op.ROI_ALIGN, int32(0), int32(0)),
    "ROI_POOLING": lambda: _regions(Op.ROI_POOLING),
    "HEATMAP_MAX_KEYPOINT": lambda: (
        Op.HEATMAP_MAX_KEYPOINT,
        [floats(16, 512, 512, 8), boxes(16), boolean(False)],
        [OUT, OUT],
    ),
}


class Gaps:
    """Check that notes the longest processor time since the last one."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = self._start = time.thread_time()

    def __call__(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now

    @property
    def total(self) -> float:
        """Processor time from the start to the last check."""
        return self._last - self._start


def measure(case: Case) -> tuple[Gaps, float]:
    """Run an operation. Return its gaps, and its estimate in seconds."""
    type_, inputs, outputs = case
    view = build_graphs(model_of(type_, inputs, outputs, constants=False))[0].operations[0]
    arrays = [np.asarray(value, DTYPES[operand.type]) for operand, value in inputs]
    gaps = Gaps()
    call = DividedCall(view, [*arrays, *(None for _ in outputs)], {}, check=gaps)
    shapes = infer(call, [()] * len(outputs))
    call.expect(shapes)
    KERNELS[type_](call)
    gaps()
    declared = [replace(operand, dimensions=tuple(shape)) for operand, shape in zip(outputs, shapes, strict=True)]
    return gaps, estimate_duration_ns(build_graphs(model_of(type_, inputs, declared, constants=False))) / 1e9


def main() -> None:
    """Measure the cases."""
    for name, case in CASES.items():
        if sys.argv[1:] and not name.startswith(tuple(sys.argv[1:])):
            continue
        gaps, estimate = measure(case())
        marks = ["LONG"] * (gaps.longest > LONG_S) + ["UNDERESTIMATED"] * (gaps.total > FACTOR * estimate)
        line = f"{gaps.total:8.3f} s, at most {gaps.longest:.3f} s without a check, estimate {estimate:8.3f} s"
        print(f"{name:30}{line} {' '.join(marks)}", flush=True)


if __name__ == "__main__":
    main()
