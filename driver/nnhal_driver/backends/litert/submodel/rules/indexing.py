"""Operators with indices into a tensor.

Kernels that do not check indices at execution are accepted only with constant ones, which are checked here.
"""

import numpy as np

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, elements, rule
from nnhal_driver.backends.litert.submodel.rules.shapes import ANY

_UNSORTED_SEGMENTS = {
    "UNSORTED_SEGMENT_PROD": "UnsortedSegmentProdOptions",
    "UNSORTED_SEGMENT_MAX": "UnsortedSegmentMaxOptions",
    "UNSORTED_SEGMENT_MIN": "UnsortedSegmentMinOptions",
    "UNSORTED_SEGMENT_SUM": "UnsortedSegmentSumOptions",
}


def _check_indices(op: OperatorCheck, index: int, size: int) -> None:
    """Check that the indices in an input, if it is constant, are from 0 to less than a size."""
    tensor = op.input(index)
    if tensor.data is not None:
        values = tensor.values()
        low, high = int(values.min()), int(values.max())
        op.require(low >= 0 and high < size, f"input {index} has indices {low} to {high}; expected 0 to {size - 1}")


@rule("GATHER", types=[f"T:{ANY} i32|i64|i16 -> T"], options="GatherOptions", quantized=False)
def gather(op: OperatorCheck) -> None:
    """Check the selection of slices by index. The kernel checks indices that are not constant."""
    shape, indices = op.shape(0, low=1), op.input(1).shape
    axis = op.axis("axis", op.option("axis"), len(shape))
    batches = op.option("batch_dims")
    op.require_range("batch_dims", batches, 0, min(axis, len(indices)))
    op.require(shape[:batches] == indices[:batches], f"the batches {shape[:batches]} and {indices[:batches]} differ")
    _check_indices(op, 1, shape[axis])


@rule(
    "GATHER_ND", types=[f"T:{ANY} i16|i32|i64 -> T"], options="GatherNdOptions", optional_options=True, quantized=False
)
def gather_nd(op: OperatorCheck) -> None:
    """Check the selection of slices by tuples of indices. The kernel checks indices that are not constant."""
    shape, indices = op.shape(0, low=1), op.shape(1, low=1)
    depth = indices[-1]
    op.require_range("length of the index tuples", depth, 1, min(len(shape), 6))
    _check_tuples(op, 1, shape)


def _check_tuples(op: OperatorCheck, index: int, shape: tuple[int, ...]) -> None:
    """Check the tuples in the last dimension of a constant input."""
    tensor = op.input(index)
    if tensor.data is not None:
        depth = tensor.shape[-1]
        tuples = tensor.values().reshape(-1, depth)
        limits = np.asarray(shape[:depth])
        op.require(
            ((tuples >= 0) & (tuples < limits)).all(), f"input {index} has indices out of the shape {list(shape)}"
        )


@rule(
    "SCATTER_ND",
    types=["I:i32 T:f32|i8|u8|i16|i32|i64|bool I -> T"],
    options="ScatterNdOptions",
    optional_options=True,
    quantized=False,
)
def scatter_nd(op: OperatorCheck) -> None:
    """Check the addition of slices at tuples of constant indices."""
    indices, updates, shape = op.shape(0, low=1), op.input(1).shape, op.integers(2)
    depth = indices[-1]
    op.require_range("length of the index tuples", depth, 1, min(len(shape), 6))
    op.require(min(shape) >= 1, f"input 2 is {shape}; expected at least 1")
    op.constant(0)
    _check_tuples(op, 0, tuple(shape))
    op.require(
        updates == (*indices[:-1], *shape[depth:]),
        f"input 1 has shape {list(updates)}; expected {[*indices[:-1], *shape[depth:]]}",
    )


@rule("EMBEDDING_LOOKUP", types=[f"i32 T:{ANY} -> T", "i32 i8|u8 -> f32"], quantized=False, per_channel=[1])
def embedding_lookup(op: OperatorCheck) -> None:
    """Check the selection of rows. The kernel checks indices that are not constant."""
    op.shape(0, rank=1)
    shape = op.shape(1, low=2)
    _check_indices(op, 0, shape[0])
    if op.outputs[0].type != op.input(1).type:
        op.require(op.input(1).quantization is not None, "input 1 has no scale")


@rule("ONE_HOT", types=["i32|i64 i32 T:f32|i8|u8|i16|i32|i64|bool T -> T"], options="OneHotOptions", quantized=False)
def one_hot(op: OperatorCheck) -> None:
    """Check the expansion of indices. Those out of range give no hot element."""
    shape = op.shape(0, high=7)
    for index in (1, 2, 3):
        op.input_shape(index, ())
    op.require_range("depth", op.integer(1), 1, 2**28)
    op.require_range("axis", op.option("axis"), -1, len(shape))


@rule("SEGMENT_SUM", types=["T:f32|i32 i32 -> T"], options="SegmentSumOptions", optional_options=True)
def segment_sum(op: OperatorCheck) -> None:
    """Check the sums of slices by constant, sorted segments."""
    shape = op.shape(0, low=1)
    segments = op.vector(1, shape[0])
    op.require(op.input(1).shape == (shape[0],), f"input 1 has shape {list(op.input(1).shape)}; expected {[shape[0]]}")
    op.require(segments[0] == 0, f"input 1 begins with {segments[0]}; expected 0")
    steps = np.diff(segments.astype(np.int64))
    op.require(((steps == 0) | (steps == 1)).all(), "input 1 is not sorted, or skips a segment")
    op.output_shape([int(segments[-1]) + 1, *shape[1:]])


def unsorted_segment(op: OperatorCheck) -> None:
    """Check the reduction of slices by constant segments; negative ones are dropped."""
    shape, segments = op.input(0).shape, op.shape(1, low=1)
    op.require(shape[: len(segments)] == segments, f"input 1 has shape {list(segments)}; input 0 has {list(shape)}")
    count = op.integer(2)
    op.input_shape(2, ())
    op.require_range("num_segments", count, 1, 2**28)
    highest = int(op.constant(1).max())
    op.require(highest < count, f"input 1 has segment {highest}; there are {count}")
    op.output_shape([count, *shape[len(segments) :]])


for _name, _options in _UNSORTED_SEGMENTS.items():
    rule(_name, types=["T:f32|i32 i32 i32 -> T"], options=_options, optional_options=True)(unsorted_segment)


@rule("BUCKETIZE", types=["f32|f64|i32|i64 -> i32"], options="BucketizeOptions")
def bucketize(op: OperatorCheck) -> None:
    """Check the search of values in sorted boundaries."""
    boundaries = op.operator.options["boundaries"]
    assert boundaries is None or isinstance(boundaries, tuple)
    op.require(boundaries and list(boundaries) == sorted(boundaries), "boundaries are missing or not sorted")
    op.output_shape(op.input(0).shape)


@rule(
    "MATRIX_DIAG",
    types=["T:f32|i8|u8|i16|i32|i64 -> T"],
    options="MatrixDiagOptions",
    optional_options=True,
    quantized=False,
)
def matrix_diag(op: OperatorCheck) -> None:
    """Check matrices with given diagonals. The kernel writes out of bounds if the elements are Booleans."""
    op.shape(0, low=1, high=7)


@rule(
    "MATRIX_SET_DIAG",
    types=["T:f32|i8|u8|i16|i32|i64 T -> T"],
    options="MatrixSetDiagOptions",
    quantized=False,
    optional_options=True,
)
def matrix_set_diag(op: OperatorCheck) -> None:
    """Check the replacement of diagonals. The kernel writes out of bounds if the elements are Booleans."""
    shape = op.shape(0, low=2)
    op.input_shape(1, [*shape[:-2], min(shape[-2:])])
    op.work += elements(shape)
