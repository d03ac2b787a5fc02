"""Shapes of operators that move elements: RESHAPE, slices, joins, blocks and others."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, prod

import numpy as np

from nnhal.tflite_schema.shapes.rule import UNKNOWN, Shape, ShapeCall, Shapes, broadcast_shapes, shapes


@shapes("RESHAPE")
def reshape(call: ShapeCall) -> Shapes:
    """Infer the constant shape, with the length for a -1. LiteRT ignores a shape that is not int32."""
    is_stated = call.has(1) and call.array(1).dtype == np.int32
    new = call.integers(1) if is_stated else list(call.option("new_shape", ()) or ())
    elements, known = prod(call.shape(0)), prod(length for length in new if length != -1)
    if new.count(-1) > 1 or (known != elements if -1 not in new else not known or elements % known):
        return None
    return [tuple(elements // known if length == -1 else length for length in new)]


@shapes("SQUEEZE")
def squeeze(call: ShapeCall) -> Shapes:
    """Infer the shape without the given dimensions of length 1, or without all of them."""
    shape = call.shape(0)
    axes = {call.axis(int(axis), len(shape)) for axis in call.option("squeeze_dims", ()) or ()}
    axes = axes or {axis for axis, length in enumerate(shape) if length == 1}
    return [_without(shape, axes)] if all(shape[axis] == 1 for axis in axes) else None


@shapes("EXPAND_DIMS")
def expand_dims(call: ShapeCall) -> Shapes:
    """Infer the shape with another dimension of length 1."""
    shape = call.shape(0)
    axis = call.axis(call.integers(1)[0], len(shape) + 1)
    return [(*shape[:axis], 1, *shape[axis:])]


@shapes("TRANSPOSE")
def transpose(call: ShapeCall) -> Shapes:
    """Infer the permuted shape."""
    shape, order = call.shape(0), call.integers(1)
    if len(order) != len(shape):
        return None
    return [tuple(shape[call.axis(axis, len(shape))] for axis in order)]


@shapes("BROADCAST_TO")
def broadcast_to(call: ShapeCall) -> Shapes:
    """Infer the constant shape."""
    return [broadcast_shapes(call.shape(0), call.integers(1))]


@shapes("BROADCAST_ARGS")
def broadcast_args(call: ShapeCall) -> Shapes:
    """Infer the rank of a constant broadcast."""
    return [(len(broadcast_shapes(call.integers(0), call.integers(1))),)]


@shapes("FILL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM")
def fill(call: ShapeCall) -> Shapes:
    """Infer the constant shape."""
    return [tuple(call.integers(0))]


@shapes("SHAPE")
def shape(call: ShapeCall) -> Shapes:
    """Infer the number of dimensions."""
    return [(len(call.shape(0)),)]


@shapes("RANK")
def rank(call: ShapeCall) -> Shapes:
    """Infer a scalar."""
    return [()]


@shapes("WHERE")
def where(call: ShapeCall) -> Shapes:
    """Infer a row for each element that is not zero, and their number depends on values."""
    return [(UNKNOWN, len(call.shape(0)))]


@shapes("UNIQUE")
def unique(call: ShapeCall) -> Shapes:
    """Infer a number of elements that depends on values, and the shape of the indexes."""
    return [(UNKNOWN,), call.shape(0)]


@shapes("CONCATENATION")
def concatenation(call: ShapeCall) -> Shapes:
    """Infer the sum of the lengths along the axis."""
    first, *others = call.shapes()
    axis = call.axis(call.option("axis", 0), len(first))
    rests = {_without(each, {axis}) for each in (first, *others)}
    if len(rests) > 1 or any(len(other) != len(first) for other in others):
        return None
    return [_replaced(first, axis, sum(each[axis] for each in (first, *others)))]


@shapes("PACK")
def pack(call: ShapeCall) -> Shapes:
    """Infer the shape with a new dimension."""
    first, *others = call.shapes()
    axis = call.axis(call.option("axis", 0), len(first) + 1)
    return [(*first[:axis], len(others) + 1, *first[axis:])] if set(others) <= {first} else None


@shapes("UNPACK")
def unpack(call: ShapeCall) -> Shapes:
    """Infer the shape without a dimension, for each index of it."""
    shape = call.shape(0)
    axis = call.axis(call.option("axis", 0), len(shape))
    return [_without(shape, {axis})] * shape[axis] if shape[axis] == len(call.outputs) else None


@shapes("SPLIT")
def split(call: ShapeCall) -> Shapes:
    """Infer equal parts."""
    shape, count = call.shape(1), len(call.outputs)
    axis = call.axis(call.integers(0)[0], len(shape))
    return [_replaced(shape, axis, shape[axis] // count)] * count if shape[axis] % count == 0 else None


@shapes("SPLIT_V")
def split_v(call: ShapeCall) -> Shapes:
    """Infer parts of constant sizes. A size of -1 is the rest."""
    shape, sizes = call.shape(0), call.integers(1)
    axis = call.axis(call.integers(2)[0], len(shape))
    rest = shape[axis] - sum(size for size in sizes if size != -1)
    return [_replaced(shape, axis, rest if size == -1 else size) for size in sizes]


@shapes("TILE")
def tile(call: ShapeCall) -> Shapes:
    """Infer the product of lengths and repetitions."""
    return [tuple(length * count for length, count in zip(call.shape(0), call.integers(1), strict=True))]


@shapes("PAD", "PADV2", "MIRROR_PAD")
def pad(call: ShapeCall) -> Shapes:
    """Infer the lengths with their padding."""
    pairs = call.array(1).reshape(-1, 2).tolist()
    return [tuple(length + sum(pair) for length, pair in zip(call.shape(0), pairs, strict=True))]


@shapes("SLICE")
def slice_(call: ShapeCall) -> Shapes:
    """Infer constant sizes. A size of -1 extends to the end."""
    windows = zip(call.shape(0), call.integers(1), call.integers(2), strict=True)
    return [tuple(length - begin if size == -1 else size for length, begin, size in windows)]


@shapes("STRIDED_SLICE")
def strided_slice(call: ShapeCall) -> Shapes:
    """Infer the lengths of constant slices."""
    begins, ends, strides = (call.integers(i) for i in (1, 2, 3))
    if call.option("offset", False):
        ends = [begin + end for begin, end in zip(begins, ends, strict=True)]
    limits = list(zip(begins, ends, strides, strict=True))
    masks = {name: call.option(f"{name}_mask", 0) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    lengths, result = list(call.shape(0)), []
    covered = sum(1 for i in range(len(limits)) if not (masks["ellipsis"] | masks["new_axis"]) >> i & 1)
    for i, (begin, end, stride) in enumerate(limits):
        set_ = {name for name, mask in masks.items() if mask >> i & 1}
        if "ellipsis" in set_:
            rest = len(call.shape(0)) - covered
            result += lengths[:rest]
            del lengths[:rest]
        elif "new_axis" in set_:
            result.append(1)
        elif "shrink_axis" in set_:
            del lengths[0]
        else:
            limit = slice(None if "begin" in set_ else begin, None if "end" in set_ else end, stride)
            result.append(len(range(*limit.indices(lengths.pop(0)))))
    return [(*result, *lengths)]


@shapes("GATHER")
def gather(call: ShapeCall) -> Shapes:
    """Infer the shape with that of the indexes in place of the axis."""
    values, indexes = call.shape(0), call.shape(1)
    axis, batch = call.axis(call.option("axis", 0), len(values)), call.option("batch_dims", 0)
    batch = batch + len(indexes) if batch < 0 else batch
    return [(*values[:axis], *indexes[batch:], *values[axis + 1 :])]


@shapes("GATHER_ND")
def gather_nd(call: ShapeCall) -> Shapes:
    """Infer the shape of the indexes, with the dimensions of the values that they leave."""
    values, indexes = call.shape(0), call.shape(1)
    return [(*indexes[:-1], *values[indexes[-1] :])]


@shapes("SCATTER_ND", "SPARSE_TO_DENSE")
def scatter_nd(call: ShapeCall) -> Shapes:
    """Infer the constant shape."""
    return [tuple(call.integers(2 if call.name == "SCATTER_ND" else 1))]


@shapes("RANGE")
def range_(call: ShapeCall) -> Shapes:
    """Infer the number of constant steps, in the arithmetic of their type."""
    start, limit, delta = (call.array(i).reshape(-1)[0] for i in range(3))
    steps = (limit - start) / delta if delta.dtype.kind == "f" else Fraction(int(limit) - int(start), int(delta))
    return [(max(ceil(steps), 0),)]


@shapes("SEGMENT_SUM")
def segment_sum(call: ShapeCall) -> Shapes:
    """Infer as many rows as the constant numbers of segments need."""
    return [(max(call.integers(1), default=-1) + 1, *call.shape(0)[1:])]


@shapes("UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_SUM")
def unsorted_segments(call: ShapeCall) -> Shapes:
    """Infer a constant number of rows."""
    return [(call.integers(2)[0], *call.shape(0)[len(call.shape(1)) :])]


@shapes("MULTINOMIAL")
def multinomial(call: ShapeCall) -> Shapes:
    """Infer a constant number of samples for each row."""
    return [(call.shape(0)[0], call.integers(1)[0])]


@shapes("DILATE")
def dilate(call: ShapeCall) -> Shapes:
    """Infer the lengths with new elements between others."""
    return [tuple((n - 1) * factor + 1 for n, factor in zip(call.shape(0), call.integers(1), strict=True))]


@shapes("STABLEHLO_PAD")
def stablehlo_pad(call: ShapeCall) -> Shapes:
    """Infer the lengths with padding outside and between elements."""
    low, high, inner = (call.option(name, ()) for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    lengths = zip(call.shape(0), low, high, inner, strict=True)
    return [tuple(n + before + after + max(n - 1, 0) * between for n, before, after, between in lengths)]


@shapes("STABLEHLO_GATHER")
def stablehlo_gather(call: ShapeCall) -> Shapes:
    """Infer the dimensions of the indexes, and at the offsets those of the slices. The kernel reads the rank."""
    lengths = _without(call.shape(1), {call.option("index_vector_dim", 0)})
    kept = _without(call.option("slice_sizes", ()), set(call.option("collapsed_slice_dims", ()) or ()))
    batches, sizes, offsets = iter(lengths), iter(kept), set(call.option("offset_dims", ()) or ())
    return [tuple(next(sizes if i in offsets else batches) for i in range(len(lengths) + len(kept)))]


@shapes("STABLEHLO_RNG_BIT_GENERATOR")
def random_bits(call: ShapeCall) -> Shapes:
    """Infer the shape of the state. That of the numbers is the one in the file."""
    return [call.shape(0), call.outputs[1]]


@shapes("ONE_HOT")
def one_hot(call: ShapeCall) -> Shapes:
    """Infer the shape of the indexes with a dimension of the given depth."""
    indexes = call.shape(0)
    axis = call.option("axis", -1)
    axis = len(indexes) if axis == -1 else axis
    return [(*indexes[:axis], call.integers(1)[0], *indexes[axis:])]


@shapes("SPACE_TO_DEPTH")
def space_to_depth(call: ShapeCall) -> Shapes:
    """Infer the shape of an image whose blocks become channels."""
    (batches, height, width, channels), block = call.shape(0), call.option("block_size", 1)
    return [(batches, height // block, width // block, channels * block * block)]


@shapes("DEPTH_TO_SPACE")
def depth_to_space(call: ShapeCall) -> Shapes:
    """Infer the shape of an image whose channels become blocks."""
    (batches, height, width, channels), block = call.shape(0), call.option("block_size", 1)
    return [(batches, height * block, width * block, channels // (block * block))]


@shapes("SPACE_TO_BATCH_ND")
def space_to_batch(call: ShapeCall) -> Shapes:
    """Infer the shape of an image whose blocks become batches."""
    image, blocks = call.shape(0), call.integers(1)
    padded = [n + sum(p) for n, p in zip(image[1:], call.array(2).tolist(), strict=False)]
    sizes = [n // block for n, block in zip(padded, blocks, strict=True)]
    return [(image[0] * prod(blocks), *sizes, *image[1 + len(blocks) :])]


@shapes("BATCH_TO_SPACE_ND")
def batch_to_space(call: ShapeCall) -> Shapes:
    """Infer the shape of an image whose batches become blocks."""
    image, blocks = call.shape(0), call.integers(1)
    if call.array(2).dtype != np.int32:
        return None  # LiteRT misreads such crops
    full = [n * block for n, block in zip(image[1:], blocks, strict=False)]
    sizes = [n - sum(crop) for n, crop in zip(full, call.array(2).tolist(), strict=True)]
    return [(image[0] // prod(blocks), *sizes, *image[1 + len(blocks) :])]


@shapes(
    "MEAN",
    "SUM",
    "REDUCE_ALL",
    "REDUCE_ANY",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "REDUCE_PROD",
)
def reduction(call: ShapeCall) -> Shapes:
    """Infer the shape without the constant axes, or with a length of 1 there."""
    shape = call.shape(0)
    axes = {call.axis(axis, len(shape)) for axis in call.integers(1)} if shape else set()
    if call.option("keep_dims", False):
        return [tuple(1 if axis in axes else length for axis, length in enumerate(shape))]
    return [_without(shape, axes)]


@shapes("ARG_MAX", "ARG_MIN")
def arg_extreme(call: ShapeCall) -> Shapes:
    """Infer the shape without the axis."""
    shape = call.shape(0)
    return [_without(shape, {call.axis(call.integers(1)[0], len(shape))})]


@shapes("TOPK_V2")
def top_k(call: ShapeCall) -> Shapes:
    """Infer a constant number of elements of each row."""
    return [(*call.shape(0)[:-1], call.integers(1)[0])] * 2


def _without(shape: Sequence[int], axes: set[int]) -> Shape:
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


def _replaced(shape: Shape, axis: int, length: int) -> Shape:
    return (*shape[:axis], length, *shape[axis + 1 :])
