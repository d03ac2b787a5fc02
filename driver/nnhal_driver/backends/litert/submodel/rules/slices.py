"""Operators that take parts of a tensor, pad it, and move blocks and whole dimensions."""

from collections.abc import Sequence

from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, rule
from nnhal_driver.backends.litert.submodel.rules.shapes import ANY

_MAX_SLICE_RANK = 5


@rule("SLICE", types=[f"T:{ANY} I:i32|i64 I -> T"], options="SliceOptions", optional_options=True, quantized=False)
def slice_(op: OperatorCheck) -> None:
    """Check a part of a tensor with a constant begin and size."""
    shape = op.shape(0, low=1, high=_MAX_SLICE_RANK)
    begins, sizes = op.integers(1, len(shape)), op.integers(2, len(shape))
    for axis, (begin, size, whole) in enumerate(zip(begins, sizes, shape, strict=True)):
        op.require_range(f"begin of dimension {axis}", begin, 0, whole - 1)
        if size != -1:
            op.require_range(f"size of dimension {axis}", size, 1, whole - begin)


@rule("STRIDED_SLICE", types=[f"T:{ANY} i32 i32 i32 -> T"], options="StridedSliceOptions", quantized=False)
def strided_slice(op: OperatorCheck) -> None:
    """Check a part of a tensor in the notation of Python, with constant limits."""
    shape = op.shape(0, low=1, high=_MAX_SLICE_RANK)
    op.require(not op.option("offset"), "offset is set; it is not supported")
    begins = op.integers(1)
    count = len(begins)
    ends, strides = (op.integers(index, count) if count > 1 else [op.integer(index)] for index in (2, 3))
    limits = list(zip(begins, ends, strides, strict=True))
    for position, axis in _sliced_dimensions(op, count, len(shape)):
        _check_slice(op, position, shape[axis], limits[position])


def _sliced_dimensions(op: OperatorCheck, count: int, rank: int) -> list[tuple[int, int]]:
    """Return pairs of a position in the limits and the dimension of the input that it slices."""
    ellipsis, new = op.option("ellipsis_mask"), op.option("new_axis_mask")
    for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
        op.require_range(name, op.option(name), 0, 2**count - 1)
    op.require(not new & op.option("shrink_axis_mask"), f"new_axis_mask is {new}; shrink_axis_mask has the same bits")
    covered = [i for i in range(count) if not (ellipsis | new) >> i & 1]
    ellipses = [i for i in range(count) if ellipsis >> i & 1]
    op.require(len(ellipses) <= 1, f"ellipsis_mask is {ellipsis}; expected at most one bit")
    rest = rank - len(covered)
    op.require(rest >= 0, f"{len(covered)} dimensions have limits; input 0 has {rank}")
    added = sum(1 for i in range(count) if new >> i & 1 and not ellipsis >> i & 1)
    op.require_range("number of dimensions with the new ones", rank + added, 1, _MAX_SLICE_RANK)
    return [(i, axis + (rest if ellipses and i > ellipses[0] else 0)) for axis, i in enumerate(covered)]


def _check_slice(op: OperatorCheck, position: int, size: int, limits: tuple[int, int, int]) -> None:
    """Check the limits of a dimension, which is removed or keeps at least one element."""
    bit, (begin, end, step) = 1 << position, limits
    op.require(step != 0 and abs(step) < 2**30, f"stride {position} is {step}; expected another than 0")
    no_begin, no_end = (op.option(name) & bit for name in ("begin_mask", "end_mask"))
    if op.option("shrink_axis_mask") & bit:
        op.require(step == 1, f"stride {position} is {step}; expected 1 as the dimension is removed")
        if not no_begin:
            op.axis(f"begin {position}", begin, size)
        return
    length = len(range(*slice(None if no_begin else begin, None if no_end else end, step).indices(size)))
    op.require(length, f"limits {position} leave no elements")


@rule("PAD", types=[f"T:{ANY} i32|i64 -> T"], options="PadOptions", optional_options=True, quantized=False)
@rule("PADV2", types=[f"T:{ANY} i32|i64 T -> T"], options="PadV2Options", optional_options=True, quantized=False)
def pad(op: OperatorCheck) -> None:
    """Check a border of one value around a tensor."""
    shape = op.shape(0, low=1, high=5)
    if len(op.inputs) > 2:
        op.require(op.input(2).elements == 1, "input 2 has more than one element; expected 1")
        op.same_quantization(op.input(0), op.input(2))
    op.same_quantization(op.input(0), op.outputs[0])
    _check_padding(op, shape, 2**30)


@rule("MIRROR_PAD", types=[f"T:{ANY} i32|i64 -> T"], options="MirrorPadOptions", quantized=False)
def mirror_pad(op: OperatorCheck) -> None:
    """Check a border that reflects a tensor: at most its size, and one less if the edge is not repeated."""
    shape = op.shape(0, low=1, high=5)
    op.require_range("mode", op.option("mode"), 0, 1)
    _check_padding(op, shape, 0 if op.option("mode") == 1 else -1)


def _check_padding(op: OperatorCheck, shape: Sequence[int], more: int) -> None:
    """Check the padding of input 1, which may be larger than each dimension by `more`."""
    op.input_shape(1, (len(shape), 2))
    for axis, (pair, size) in enumerate(zip(op.constant(1).tolist(), shape, strict=True)):
        for amount in pair:
            op.require_range(f"padding of dimension {axis}", amount, 0, size + more)


@rule("REVERSE_V2", types=[f"T:{ANY} i32 -> T"], options="ReverseV2Options", optional_options=True, quantized=False)
def reverse(op: OperatorCheck) -> None:
    """Check the reversal of neighboring dimensions."""
    shape = op.shape(0, low=1)
    axes = sorted(op.axis("axis", axis, len(shape)) for axis in op.integers(1))
    expected = list(range(axes[0], axes[0] + len(axes))) if axes else []
    op.require(axes and axes == expected, f"input 1 is {axes}; expected different, neighboring axes")


@rule("REVERSE_SEQUENCE", types=[f"T:{ANY} i32|i64 -> T"], options="ReverseSequenceOptions", quantized=False)
def reverse_sequence(op: OperatorCheck) -> None:
    """Check the reversal of sequences of constant lengths."""
    shape = op.shape(0, low=2)
    sequence, batch = op.option("seq_dim"), op.option("batch_dim")
    op.require_range("seq_dim", sequence, 0, len(shape) - 1)
    op.require_range("batch_dim", batch, 0, len(shape) - 1)
    op.require(sequence != batch, f"seq_dim and batch_dim are both {batch}")
    lengths = op.vector(1, shape[batch])
    low, high = int(lengths.min()), int(lengths.max())
    op.require(low >= 0 and high <= shape[sequence], f"input 1 is out of the range 0 to {shape[sequence]}")


@rule("SPACE_TO_DEPTH", types=[f"T:{ANY} -> T"], options="SpaceToDepthOptions", quantized=False)
def space_to_depth(op: OperatorCheck) -> None:
    """Check the move of blocks into channels."""
    _, height, width, _ = op.shape(0, rank=4)
    op.positive("block_size")
    block = op.option("block_size")
    op.require(height % block == 0 and width % block == 0, f"block_size is {block}; the image is {height}x{width}")


@rule("DEPTH_TO_SPACE", types=[f"T:{ANY} -> T"], options="DepthToSpaceOptions", quantized=False)
def depth_to_space(op: OperatorCheck) -> None:
    """Check the move of channels into blocks."""
    depth = op.shape(0, rank=4)[3]
    op.positive("block_size")
    block = op.option("block_size")
    op.require(depth % (block * block) == 0, f"block_size is {block}; there are {depth} channels")


def _blocks(op: OperatorCheck, shape: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Return the constant block sizes and margins, one pair for each dimension between the first and the last."""
    count = len(shape) - 2
    blocks = op.integers(1, count) if count > 1 else [op.integer(1)]
    op.input_shape(2, (count, 2))
    margins = op.constant(2).tolist()
    for axis, (block, pair) in enumerate(zip(blocks, margins, strict=True)):
        op.require_range(f"block size {axis}", block, 1, 2**15)
        for amount in pair:
            op.require_range(f"margin {axis}", amount, 0, 2**24)
    return blocks, margins


@rule(
    "SPACE_TO_BATCH_ND",
    types=[f"T:{ANY} i32 i32 -> T"],
    options="SpaceToBatchNDOptions",
    quantized=False,
    optional_options=True,
)
def space_to_batch(op: OperatorCheck) -> None:
    """Check the move of blocks into the batch."""
    shape = op.shape(0, low=3, high=4)
    blocks, margins = _blocks(op, shape)
    for size, block, pair in zip(shape[1:-1], blocks, margins, strict=True):
        padded = size + sum(pair)
        op.require(padded % block == 0, f"block size {block} does not divide the padded size {padded}")
    op.same_quantization(op.input(0), op.outputs[0])


@rule(
    "BATCH_TO_SPACE_ND",
    types=[f"T:{ANY} i32 i32 -> T"],
    options="BatchToSpaceNDOptions",
    quantized=False,
    optional_options=True,
)
def batch_to_space(op: OperatorCheck) -> None:
    """Check the move of the batch into blocks."""
    shape = op.shape(0, low=3, high=4)
    blocks, margins = _blocks(op, shape)
    batches = shape[0]
    for size, block, pair in zip(shape[1:-1], blocks, margins, strict=True):
        op.require(batches % block == 0, f"block size {block} does not divide {batches} batches")
        op.require(size * block > sum(pair), f"crops {pair} leave nothing of {size * block}")
        batches //= block
    op.same_quantization(op.input(0), op.outputs[0])
