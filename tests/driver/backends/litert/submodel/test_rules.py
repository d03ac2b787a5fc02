"""Rules of operators: what LiteRT's kernels take for granted is checked before, and the message names it."""

from typing import Any

import numpy as np
import pytest

from nnhal_driver.backends.litert.submodel.operator_check import RULES
from tests.driver.backends.litert.submodel.checking import changed, check, quantized, refusal, set_field
from tests.driver.backends.litert.submodel.detection import detection, detection_models
from tests.driver.backends.litert.submodel.fuzzing import LIMITS
from tests.driver.backends.litert.submodel.seeds import repaired, seed_count, seed_model
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options, unpack
from tests.nnhal.tflite.corpus.cases import cases

SAME, VALID = 0, 1
F = Tensor


def conv(
    image: Tensor,
    filter_: Tensor,
    *bias: Tensor,
    result: tuple[int, ...] = (1, 4, 4, 2),
    name: str = "Conv2D",
    **more: Any,
) -> Op:
    table = options(name, **{"strideW": 1, "strideH": 1, "padding": SAME, **more})
    operator = {"Conv2D": "CONV_2D", "DepthwiseConv2D": "DEPTHWISE_CONV_2D"}[name]
    output = F(result) if image.type == "FLOAT32" else quantized(result, 1.0, type_=image.type)
    return Op(operator, [image, filter_, *bias], [output], table)


IMAGE = F((1, 4, 4, 3))


def weights(*shape: int, type_: str = "FLOAT32", **more: Any) -> Tensor:
    return F(shape, type_, np.ones(shape), **more)


def depthwise(*bias: Tensor, multiplier: int = 1, filter_: Tensor | None = None) -> Op:
    filter_ = filter_ or weights(1, 2, 2, 3)
    return conv(IMAGE, filter_, *bias, result=(1, 4, 4, 3), name="DepthwiseConv2D", depthMultiplier=multiplier)


def pool(result: tuple[int, ...] = (1, 4, 4, 3), **more: Any) -> Op:
    table = options("Pool2D", **{"strideW": 1, "strideH": 1, "filterWidth": 2, "filterHeight": 2, **more})
    return Op("MAX_POOL_2D", [IMAGE], [F(result)], table)


def binary(name: str, first: Tensor, second: Tensor, result: Tensor, kind: str = "", **more: Any) -> Op:
    return Op(name, [first, second], [result], options(kind, **more) if kind else None)


def data_movement(name: str, *inputs: Tensor, result: tuple[int, ...], kind: str = "", **more: Any) -> Op:
    return Op(name, list(inputs), [F(result)], options(kind, **more) if kind else None)


def matrix(*rows: tuple[int, ...]) -> Tensor:
    return F(np.shape(rows), "INT32", rows)


def transposed(shape: list[int], image: tuple[int, ...] = (1, 2, 2, 3), **more: Any) -> Op:
    table = options("TransposeConv", **{"strideW": 2, "strideH": 2, "padding": SAME, **more})
    return Op("TRANSPOSE_CONV", [ints(*shape), weights(2, 3, 3, 3), F(image)], [F(tuple(shape))], table)


def lookup(indices: Tensor, shape: tuple[int, ...], **more: Any) -> Op:
    return Op("GATHER", [F((4, 5)), indices], [F(shape)], options("Gather", **more))


def integers(name: str, kind: str, divisor: Tensor) -> Op:
    return binary(name, F((2,), "INT32"), divisor, F((2,), "INT32"), kind)


def int8(scale: float, zero_point: int = 0) -> Tensor:
    return quantized((2,), scale, zero_point)


def strided(begin: list[int], end: list[int], step: list[int], result: tuple[int, ...], **more: Any) -> Op:
    table = options("StridedSlice", **more)
    return Op("STRIDED_SLICE", [F((3, 4)), ints(*begin), ints(*end), ints(*step)], [F(result)], table)


REFUSED: list[tuple[Op, str]] = [
    # convolutions and pooling: windows, strides, channels, weights
    (conv(IMAGE, weights(2, 1, 1, 3), strideW=0), "stride_w is 0; expected at least 1"),
    (conv(IMAGE, weights(2, 1, 1, 3), strideH=-1), "stride_h is -1; expected at least 1"),
    (conv(IMAGE, weights(2, 1, 1, 3), strideH=2**31 - 1), "stride_h is 2147483647; expected at most 32768"),
    (conv(IMAGE, weights(2, 1, 1, 3), dilationWFactor=0), "dilation_w_factor is 0; expected at least 1"),
    (conv(IMAGE, weights(2, 1, 1, 3), padding=2), "padding is 2; expected 0 to 1"),
    (conv(IMAGE, weights(2, 1, 1, 3), fusedActivationFunction=5), "fused_activation_function is 5; expected 0 to 4"),
    (conv(IMAGE, weights(2, 5, 1, 3), padding=VALID), "h of the window is 5; the image has 4"),
    (conv(IMAGE, weights(2, 1, 1, 2)), "input 0 has 3 channels; the filter has 2"),
    (conv(IMAGE, weights(2, 1, 1, 4)), "input 0 has 3 channels; the filter has 4"),
    (conv(IMAGE, weights(2, 1, 1, 1)), "2 output channels are not a multiple of 3 groups"),
    (conv(F((4, 4, 3)), weights(2, 1, 1, 3)), "input 0 has shape [4, 4, 3]; expected rank 4"),
    (conv(IMAGE, weights(2, 1, 1, 3), weights(3)), "input 2 has shape [3]; expected [2]"),
    (conv(IMAGE, weights(2, 1, 1, 3), result=(1, 4, 4, 3)), "output 0 has shape [1, 4, 4, 3]; expected [1, 4, 4, 2]"),
    (
        conv(
            quantized((1, 4, 4, 3)),
            F((2, 1, 1, 3), "INT8", np.ones(6), (0.5, 0.5, 0.5), (0, 0, 0), 3),
        ),
        "quantized_dimension of input 1 is 3; expected 0",
    ),
    (
        conv(quantized((1, 4, 4, 3)), quantized((2, 1, 1, 3), 1e9, data=np.ones(6))),
        "smallest input scale * weight scale / output scale is 5e+08; expected",
    ),
    (
        conv(
            quantized((1, 4, 4, 3)),
            quantized((2, 1, 1, 3), data=np.ones(6)),
            F((2,), "INT32", [1, 2], (9.0,), (0,)),
        ),
        "scale of input 2 is not the product of the scales of inputs 0 and 1",
    ),
    (depthwise(), "inputs has 2 tensors; expected 3 to 3"),
    (depthwise(weights(3), multiplier=2), "depth_multiplier is 2; expected 1 to 1"),
    (depthwise(weights(4), filter_=weights(1, 2, 2, 4)), "4 channels are not a multiple of the input's 3"),
    (
        depthwise(weights(3), filter_=weights(2, 2, 2, 3)),
        "the filter has shape [2, 2, 2, 3]; expected 1 in dimension 0",
    ),
    (
        depthwise(weights(3), filter_=weights(1, 2, 2, 3, type_="INT8", scale=(0.5,), zero_point=(0,))),
        "input 1 has 1 scales; expected one for each of the 3 channels",
    ),
    (pool(filterWidth=0), "filter_width is 0; expected at least 1"),
    (pool(strideH=0), "stride_h is 0; expected at least 1"),
    (pool(filterHeight=5, padding=VALID), "h of the window is 5; the image has 4"),
    (transposed([1, 9, 4, 2]), "input 0 is [1, 9, 4, 2]; an image of this size gives 5 in h, not 2"),
    (transposed([2, 4, 4, 2]), "input 0 is [2, 4, 4, 2]; expected 1 and 2"),
    (transposed([1, 4, 4, 2], (1, 2, 2, 2)), "input 2 has 2 channels; the filter has 3"),
    (transposed([1, 4, 4, 2], strideW=0), "stride_w is 0; expected at least 1"),
    (
        data_movement("RESIZE_BILINEAR", IMAGE, ints(0, 2), result=(1, 4, 2, 3), kind="ResizeBilinear"),
        "input 1 is [0, 2]; expected 1 to 32768",
    ),
    (
        Op(
            "RESIZE_BILINEAR",
            [IMAGE, ints(2, 2)],
            [F((1, 2, 2, 3))],
            options("ResizeBilinear", alignCorners=True, halfPixelCenters=True),
        ),
        "align_corners and half_pixel_centers are both set",
    ),
    # integers: division by 0 and of the lowest number by -1 are signals
    (integers("DIV", "Div", ints(1, 0)), "input 1 contains 0 or -1"),
    (integers("FLOOR_DIV", "FloorDiv", ints(-1, 2)), "input 1 contains 0 or -1"),
    (integers("FLOOR_MOD", "FloorMod", F((2,), "INT32")), "input 1 is not constant; its value must be known"),
    (integers("RIGHT_SHIFT", "RightShift", ints(1, 32)), "input 1 contains a distance out of the range 0 to 31"),
    (
        binary("DIV", int8(1), quantized((2,), 1, 3, data=[1, 3]), int8(1), "Div"),
        "input 1 contains a value that means 0",
    ),
    # scales: kernels abort when a fixed-point factor is out of range
    (binary("ADD", int8(1), int8(1), int8(1e-6), "Add"), "largest input scale / output scale is 1e+06; expected"),
    (
        binary("MUL", int8(100), int8(100), int8(1), "Mul"),
        "product of the input scales / output scale is 10000; expected",
    ),
    (
        binary("SQUARED_DIFFERENCE", int8(100), int8(1), int8(1), "SquaredDifference"),
        "square of the largest input scale / output scale is 10000; expected",
    ),
    (binary("GREATER", int8(2), int8(1), F((2,), "BOOL")), "scale of input 0 is 2; expected"),
    (Op("SOFTMAX", [int8(1e-7)], [int8(1)], options("Softmax", beta=1.0)), "beta * input scale is 1e-07; expected"),
    (Op("SOFTMAX", [F((2,))], [F((2,))], options("Softmax", beta=0.0)), "beta is 0.0; expected"),
    (Op("RELU", [int8(1e10)], [int8(1)]), "input scale / output scale is 1e+10; expected"),
    (
        binary(
            "ADD",
            quantized((2, 3), 0.5, type_="INT16"),
            quantized((3,), 0.5, type_="INT16"),
            quantized((2, 3), 0.5, type_="INT16"),
            "Add",
        ),
        "input 1 has shape [3]; expected [2, 3]",
    ),
    # shapes
    (binary("ADD", F((2, 3)), F((2,)), F((2, 3)), "Add"), "shapes [2, 3] and [2] do not broadcast"),
    (binary("ADD", F((2, 3)), F((3,)), F((3,)), "Add"), "output 0 has shape [3]; expected [2, 3]"),
    (
        binary("ATAN2", F((1, 2)), F((3, 2)), F((3, 2))),
        "input 1 has shape [3, 2]; expected [1, 2]",
    ),
    (data_movement("RESHAPE", F((2, 3)), ints(4, 2), result=(4, 2)), "new_shape is [4, 2]; input 0 has 6 elements"),
    (data_movement("RESHAPE", F((2, 3)), ints(-1, -1), result=(2, 3)), "new_shape is [-1, -1]"),
    (data_movement("RESHAPE", F((2, 3)), ints(-2, 3), result=(2, 3)), "new_shape is [-2, 3]"),
    (data_movement("RESHAPE", F((2, 3)), F((2,), "INT32"), result=(2, 3)), "input 1 is not constant"),
    (data_movement("RESHAPE", F((2, 3)), result=(2, 3)), "new_shape is missing, and so is input 1"),
    (
        data_movement("SQUEEZE", F((1, 3)), result=(3,), kind="Squeeze", squeezeDims=[2]),
        "squeeze_dims is 2; expected -2",
    ),
    (data_movement("SQUEEZE", F((1, 3)), result=(1,), kind="Squeeze", squeezeDims=[1]), "squeeze_dims is [1]"),
    (data_movement("EXPAND_DIMS", F((3,)), ints(5), result=(3, 1)), "axis is 5; expected -2 to 1"),
    (data_movement("TRANSPOSE", F((2, 3)), ints(0, 0), result=(2, 2)), "input 1 is [0, 0]; expected a permutation"),
    (data_movement("TRANSPOSE", F((2, 3)), ints(0, 2), result=(2, 3)), "an axis of input 1 is 2; expected -2 to 1"),
    (data_movement("TRANSPOSE", F((2, 3)), ints(0), result=(2, 3)), "input 1 has shape [1]; expected [2]"),
    (data_movement("BROADCAST_TO", F((2, 3)), ints(3, 3), result=(3, 3)), "shape [2, 3] does not broadcast to [3, 3]"),
    (data_movement("BROADCAST_TO", F((2, 3)), ints(3), result=(3,)), "shape [2, 3] does not broadcast to [3]"),
    (
        Op("BROADCAST_ARGS", [ints(2, 3), ints(4, 3)], [F((2,), "INT32")]),
        "shapes [2, 3] and [4, 3] do not broadcast",
    ),
    (Op("FILL", [ints(2**31 - 1), F(())], [F((2,))]), "output 0 has shape [2]; expected [2147483647]"),
    (
        Op("RANGE", [F((), "INT32", 0), F((), "INT32", 5), F((), "INT32", 0)], [F((5,), "INT32")]),
        "start 0, limit 5 and delta 0 give no elements",
    ),
    (
        Op("RANGE", [F((), data=0), F((), data=1e30), F((), data=1e-10)], [F((5,))]),
        "give too many",
    ),
    # joins and parts
    (
        data_movement("CONCATENATION", F((2, 3)), F((3, 3)), result=(2, 6), kind="Concatenation", axis=1),
        "input 1 has shape [3, 3]; expected [2, 3]",
    ),
    (
        data_movement("CONCATENATION", F((2,)), F((2,)), result=(4,), kind="Concatenation", axis=1),
        "axis is 1; expected -1 to 0",
    ),
    (
        data_movement("PACK", F((2,)), F((2,)), result=(2, 2), kind="Pack", valuesCount=3),
        "values_count is 3; expected 2",
    ),
    (data_movement("PACK", F((2,)), F((3,)), result=(2, 2), kind="Pack", valuesCount=2), "input 1 has shape [3]"),
    (Op("UNPACK", [F((3, 2))], [F((2,)), F((2,))], options("Unpack", num=2)), "num is 2; expected 3, as outputs"),
    (
        Op("SPLIT", [ints(0), F((3,))], [F((1,)), F((1,))], options("Split", numSplits=2)),
        "num_splits is 2; dimension 0",
    ),
    (
        Op("SPLIT", [ints(0), F((4,))], [F((2,)), F((2,))], options("Split", numSplits=0)),
        "num_splits is 0; there are 2",
    ),
    (
        Op("SPLIT_V", [F((4,)), ints(3, 3), ints(0)], [F((3,)), F((3,))], options("SplitV", numSplits=2)),
        "input 1 sums up to 6; expected 4",
    ),
    (
        Op("SPLIT_V", [F((4,)), ints(-1, 9), ints(0)], [F((3,)), F((3,))], options("SplitV", numSplits=2)),
        "input 1 sums up to 4; expected 4",
    ),
    (data_movement("TILE", F((2,)), ints(0), result=(2,)), "input 1 is [0]; expected at least 1"),
    (
        Op("DYNAMIC_UPDATE_SLICE", [F((4,)), F((5,)), F((1,), "INT32")], [F((4,))]),
        "input 1 has shape [5]; expected at most [4]",
    ),
    (data_movement("SLICE", F((4,)), ints(-1), ints(2), result=(2,)), "begin of dimension 0 is -1; expected 0 to 3"),
    (data_movement("SLICE", F((4,)), ints(3), ints(2), result=(2,)), "size of dimension 0 is 2; expected 1 to 1"),
    (data_movement("SLICE", F((4,)), ints(3), ints(2**31 - 1), result=(2,)), "size of dimension 0 is 2147483647"),
    (data_movement("SLICE", F((4,)), F((1,), "INT32"), ints(2), result=(2,)), "input 1 is not constant"),
    (strided([0, 0], [3, 4], [1, 0], (3, 4)), "stride 1 is 0; expected another than 0"),
    (strided([0, 0], [0, 4], [1, 1], (3, 4)), "limits 0 leave no elements"),
    (strided([3, 0], [4, 4], [1, 1], (4,), shrinkAxisMask=1), "begin 0 is 3; expected -3 to 2"),
    (
        strided([0, 0], [3, 4], [-1, 1], (4,), shrinkAxisMask=1),
        "stride 0 is -1; expected 1 as the dimension is removed",
    ),
    (strided([0, 0], [3, 4], [1, 1], (3, 4), ellipsisMask=3), "ellipsis_mask is 3; expected at most one bit"),
    (strided([0, 0], [3, 4], [1, 1], (3, 4), newAxisMask=-1), "new_axis_mask is -1; expected 0 to 3"),
    (strided([0, 0], [3, 4], [1, 1], (3, 4), newAxisMask=1, shrinkAxisMask=1), "shrink_axis_mask has the same bits"),
    (strided([0, 0, 0], [3, 4, 1], [1, 1, 1], (3, 4)), "3 dimensions have limits; input 0 has 2"),
    (strided([0, 0], [3, 4], [1, 1], (3, 4), offset=True), "offset is set; it is not supported"),
    (data_movement("PAD", F((2,)), matrix((-1, 0)), result=(1,)), "padding of dimension 0 is -1; expected 0 to"),
    (data_movement("PAD", F((2,)), matrix((1, 0), (1, 0)), result=(3,)), "input 1 has shape [2, 2]; expected [1, 2]"),
    (
        data_movement("MIRROR_PAD", F((2,)), matrix((2, 0)), result=(4,), kind="MirrorPad", mode=0),
        "padding of dimension 0 is 2; expected 0 to 1",
    ),
    (data_movement("MIRROR_PAD", F((2,)), matrix((1, 0)), result=(3,), kind="MirrorPad", mode=2), "mode is 2"),
    (data_movement("REVERSE_V2", F((2, 3)), ints(0, 0), result=(2, 3)), "expected different, neighboring axes"),
    (
        data_movement("REVERSE_SEQUENCE", F((2, 3)), ints(1, 4), result=(2, 3), kind="ReverseSequence", seqDim=1),
        "input 1 is out of the range 0 to 3",
    ),
    (
        data_movement("REVERSE_SEQUENCE", F((2, 3)), ints(1, 1), result=(2, 3), kind="ReverseSequence", seqDim=2),
        "seq_dim is 2; expected 0 to 1",
    ),
    (
        data_movement("SPACE_TO_DEPTH", IMAGE, result=(1, 4, 4, 3), kind="SpaceToDepth"),
        "block_size is 0; expected at least",
    ),
    (
        data_movement("SPACE_TO_DEPTH", IMAGE, result=(1, 4, 4, 3), kind="SpaceToDepth", blockSize=3),
        "block_size is 3; the",
    ),
    (
        data_movement("DEPTH_TO_SPACE", IMAGE, result=(1, 8, 8, 1), kind="DepthToSpace", blockSize=2),
        "there are 3 channels",
    ),
    (
        data_movement("SPACE_TO_BATCH_ND", IMAGE, ints(0, 2), matrix((0, 0), (0, 0)), result=(4, 2, 2, 3)),
        "block size 0 is 0; expected 1 to",
    ),
    (
        data_movement("SPACE_TO_BATCH_ND", IMAGE, ints(3, 2), matrix((0, 0), (0, 0)), result=(4, 2, 2, 3)),
        "block size 3 does not divide the padded size 4",
    ),
    (
        data_movement("BATCH_TO_SPACE_ND", F((4, 1, 1, 1)), ints(2, 2), matrix((2, 0), (0, 0)), result=(1, 1, 2, 1)),
        "crops [2, 0] leave nothing of 2",
    ),
    (
        data_movement("BATCH_TO_SPACE_ND", F((3, 1, 1, 1)), ints(2, 2), matrix((0, 0), (0, 0)), result=(1, 2, 2, 1)),
        "block size 2 does not divide 3 batches",
    ),
    # indices
    (lookup(ints(0, 4), (2, 5)), "input 1 has indices 0 to 4; expected 0 to 3"),
    (lookup(ints(-1, 0), (2, 5)), "input 1 has indices -1 to 0; expected 0 to 3"),
    (lookup(ints(0, 1), (2, 5), axis=2), "axis is 2; expected -2 to 1"),
    (lookup(ints(0, 1), (2, 5), axis=1, batchDims=2), "batch_dims is 2; expected 0 to 1"),
    (lookup(matrix((0,), (0,), (0,)), (4, 1), axis=1, batchDims=1), "the batches (4,) and (3,) differ"),
    (data_movement("GATHER_ND", F((4, 5)), matrix((0, 5)), result=(1,)), "input 1 has indices out of the shape [4, 5]"),
    (data_movement("GATHER_ND", F((4, 5)), matrix((0, 0, 0)), result=(1,)), "length of the index tuples is 3"),
    (
        Op("SCATTER_ND", [F((1, 1), "INT32"), F((1,)), ints(4)], [F((4,))]),
        "input 0 is not constant; its value must be known",
    ),
    (Op("SCATTER_ND", [matrix((4,)), F((1,)), ints(4)], [F((4,))]), "input 0 has indices out of the shape [4]"),
    (Op("SCATTER_ND", [matrix((0,)), F((2,)), ints(4)], [F((4,))]), "input 1 has shape [2]; expected [1]"),
    (Op("EMBEDDING_LOOKUP", [ints(0, 4), F((4, 2))], [F((2, 2))]), "input 0 has indices 0 to 4; expected 0 to 3"),
    (Op("EMBEDDING_LOOKUP", [ints(0), F((4,))], [F((1,))]), "input 1 has shape [4]; expected rank 2 to 8"),
    (
        Op("ONE_HOT", [F((2,), "INT32"), F((), "INT32", -1), F(()), F(())], [F((2, 3))], options("OneHot", axis=-1)),
        "depth is -1; expected 1 to",
    ),
    (
        Op("ONE_HOT", [F((2,), "INT32"), F((), "INT32", 3), F(()), F(())], [F((2, 3))], options("OneHot", axis=2)),
        "axis is 2; expected -1 to 1",
    ),
    (data_movement("SEGMENT_SUM", F((2,)), ints(0, 2), result=(3,)), "input 1 is not sorted, or skips a segment"),
    (data_movement("SEGMENT_SUM", F((2,)), ints(-1, 0), result=(1,)), "input 1 begins with -1; expected 0"),
    (
        data_movement("UNSORTED_SEGMENT_SUM", F((2,)), ints(0, 3), F((), "INT32", 3), result=(3,)),
        "input 1 has segment 3; there are 3",
    ),
    (Op("TOPK_V2", [F((3,)), F((), "INT32", 4)], [F((4,)), F((4,), "INT32")]), "k is 4; expected 1 to 3"),
    (Op("TOPK_V2", [F((3,)), F((), "INT32", -1)], [F((4,)), F((4,), "INT32")]), "k is -1; expected 1 to 3"),
    (
        Op("ARG_MAX", [F((3,)), ints(1)], [F((), "INT32")], options("ArgMax", outputType=2)),
        "axis is 1; expected -1 to 0",
    ),
    (Op("ARG_MAX", [F((3,)), ints(0)], [F((), "INT32")], options("ArgMax", outputType=4)), "output_type is 4"),
    (Op("CUMSUM", [F((3,)), ints(1)], [F((3,))], options("Cumsum")), "axis is 1; expected -1 to 0"),
    (Op("MEAN", [F((3,)), ints(1)], [F(())], options("Reducer")), "axis is 1; expected -1 to 0"),
    (Op("MEAN", [F((3,)), ints(0, 0)], [F(())], options("Reducer")), "input 1 has 2 axes; input 0 has rank 1"),
    (Op("MEAN", [F((3,)), F((1,), "INT32")], [F(())], options("Reducer")), "input 1 is not constant"),
    (
        Op("BUCKETIZE", [F((3,))], [F((3,), "INT32")], options("Bucketize", boundaries=[2, 1])),
        "boundaries are missing or",
    ),
    (
        Op("MATRIX_DIAG", [F((2,), "BOOL")], [F((2, 2), "BOOL")]),
        "types (BOOL) -> (BOOL) are not supported",
    ),
    (
        Op("MATRIX_SET_DIAG", [F((2, 2), "BOOL"), F((2,), "BOOL")], [F((2, 2), "BOOL")]),
        "types (BOOL, BOOL) -> (BOOL) are not supported",
    ),
    (Op("RESHAPE", [F((2, 3)), ints(3, 2, type_="INT64")], [F((3, 2))]), "types (FLOAT32, INT64) -> (FLOAT32)"),
    # matrices and normalization
    (
        Op("FULLY_CONNECTED", [F((2, 3)), weights(4, 4)], [F((1, 4))], options("FullyConnected")),
        "input 0 has 6 elements; expected a multiple of 4",
    ),
    (
        Op("FULLY_CONNECTED", [F((2, 4)), weights(3, 4)], [F((2, 3))], options("FullyConnected", weightsFormat=1)),
        "weights_format is 1; expected 0",
    ),
    (
        Op("BATCH_MATMUL", [F((2, 3)), F((2, 3))], [F((2, 3))], options("BatchMatMul")),
        "shapes [2, 3] and [2, 3] cannot be multiplied",
    ),
    (
        Op("BATCH_MATMUL", [F((2, 2, 3)), F((3, 3, 3))], [F((2, 2, 3))], options("BatchMatMul")),
        "shapes [2] and [3] do not broadcast",
    ),
    (
        Op("LOCAL_RESPONSE_NORMALIZATION", [IMAGE], [F(IMAGE.shape)], options("LocalResponseNormalization", radius=-1)),
        "radius is -1; expected 0 to",
    ),
    (
        Op("FAKE_QUANT", [F((2,))], [F((2,))], options("FakeQuant", numBits=1, max=1.0)),
        "num_bits is 1; expected 2 to 16",
    ),
    (Op("FAKE_QUANT", [F((2,))], [F((2,))], options("FakeQuant", numBits=8)), "min is 0.0 and max is 0.0; expected"),
    (Op("LEAKY_RELU", [F((2,))], [F((2,))], options("LeakyRelu", alpha=1e9)), "alpha is 1000000000.0; expected"),
    (
        Op(
            "SVDF",
            [F((2, 3)), weights(4, 3), weights(4, 5), weights(4), F((2, 20))],
            [F((2, 4))],
            options("SVDF", rank=1),
        ),
        "input 4 is not a variable",
    ),
    (
        Op(
            "NON_MAX_SUPPRESSION_V4",
            [F((5, 4)), F((5,)), F((), "INT32"), F(()), F(())],
            [F((5,), "INT32"), F((), "INT32")],
        ),
        "input 2 is not constant; its value must be known",
    ),
    (
        Op(
            "NON_MAX_SUPPRESSION_V4",
            [F((5, 3)), F((5,)), F((), "INT32", 2), F(()), F(())],
            [F((2,), "INT32"), F((), "INT32")],
        ),
        "input 0 has shape [5, 3]; expected [n, 4]",
    ),
]


@pytest.mark.parametrize(("op", "message"), REFUSED, ids=[f"{i}-{op.name}" for i, (op, _) in enumerate(REFUSED)])
def test_unsafe_operator_is_refused(op: Op, message: str) -> None:
    found = refusal(build(op))
    assert found.startswith(f"operator 0 ({op.name}): ")
    assert message in found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_detections": 2**17}, "max_detections is 131072; expected at most 65536"),
        ({"max_classes_per_detection": 4}, "max_classes_per_detection is 4; expected 1 to 3"),
        ({"detections_per_class": -1}, "detections_per_class is -1; expected at least 1"),
        ({"num_classes": 5}, "num_classes is 5; expected 3 to 4"),
        ({"num_classes": 2}, "num_classes is 2; expected 3 to 4"),
        ({"h_scale": 0.0}, "h_scale is 0.0; expected"),
        ({"nms_iou_threshold": 2.0}, "nms_iou_threshold is 2.0; expected"),
        ({"nms_score_threshold": float("nan")}, "nms_score_threshold is nan; expected a finite number"),
        ({"num_classes": 2**40}, "num_classes is 1099511627776; expected a 32-bit integer"),
    ],
)
def test_unsafe_detection_is_refused(changes: dict[str, float], message: str) -> None:
    found = refusal(detection(**changes))  # type: ignore[arg-type]
    assert found.startswith("operator 0 (TFLite_Detection_PostProcess): ")
    assert message in found


def test_anchors_match_the_boxes() -> None:
    for model in detection_models():
        check(model)


@pytest.mark.parametrize("name", sorted(set(RULES) - {"TFLite_Detection_PostProcess", "IF", "WHILE"}))
def test_rule_accepts_models_of_the_corpus(name: str) -> None:
    """Every operator has a model that its rule accepts, once the shapes of the outputs are known."""
    assert any(repaired(seed_model(name, index), LIMITS) for index in range(seed_count(name)))


@pytest.mark.parametrize("name", sorted(set(RULES) - {"TFLite_Detection_PostProcess", "IF", "WHILE"}))
def test_other_output_shapes_are_refused(name: str) -> None:
    """Every operator with other shapes of its outputs is refused, by the rules of shapes or by its own rule."""
    data = next(filter(None, (repaired(seed_model(name, index), LIMITS) for index in range(seed_count(name)))))
    graph = unpack(data).subgraphs[0]
    for position, tensor in enumerate(graph.operators[0].outputs):
        shape = graph.tensors[tensor].shape.tolist()
        for other in ([*shape, 1], [1, *shape], shape[1:] or [2], [*shape[:-1], sum(shape[-1:]) + 1]):
            if other != shape:
                changed_data = changed(data, set_field(f"subgraphs.0.tensors.{tensor}.shape", other))
                assert f"output {position} has shape {other}; expected " in refusal(changed_data)


def test_lstm_needs_all_inputs_of_a_gate() -> None:
    (op, *_) = (case.op for case in cases("UNIDIRECTIONAL_SEQUENCE_LSTM") if repaired(case.model(), LIMITS))
    inputs = list(op.inputs)
    inputs[5] = None
    assert "must be present together" in refusal(build(Op(op.name, inputs, op.outputs, op.options)))
