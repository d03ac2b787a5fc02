"""Convolutions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.nnhal.tflite.build import Op, options, schema
from tests.nnhal.tflite.corpus.cases import SampledTensor, constant, models, tensor

SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
RELU6 = schema.ActivationFunctionType.RELU6
TYPES = ("FLOAT32", "INT8", "UINT8", "FLOAT16", "INT16")


def weights(type_: str, shape: Sequence[int], channels: int | None = None) -> SampledTensor:
    """Return a constant filter, quantized per channel along `channels` unless that is None."""
    if channels is None:
        kind = "INT8" if type_ == "INT16" else type_
        zero_point = {"UINT8": 117}.get(kind, 0)
        return constant(tensor(kind, *shape, scale=0.02 if kind in ("INT8", "UINT8") else None, zero_point=zero_point))
    scales = tuple(0.01 + 0.003 * i for i in range(shape[channels]))
    return constant(tensor("INT8", *shape, scale=scales, zero_point=0, dimension=channels))


def bias(type_: str, filter_: SampledTensor, count: int, input_scale: float = 0.05) -> SampledTensor:
    """Return a constant bias with the scale that belongs to input and filter."""
    if type_.startswith("FLOAT"):
        return constant(tensor(type_, count))
    scales = tuple(float(np.float32(input_scale) * np.float32(scale)) for scale in filter_.scale)
    kind = "INT64" if type_ == "INT16" else "INT32"
    return constant(tensor(kind, count, scale=scales, low=-2000, high=2000))


def _forms(type_: str, filter_shape: Sequence[int], channels: int) -> Iterator[list[SampledTensor]]:
    """Yield filter and bias: per tensor and per channel, with and without bias."""
    count = filter_shape[channels]
    plain = weights(type_, filter_shape)
    yield [plain, bias(type_, plain, count, _scale(type_))]
    yield [plain]
    if type_ in ("INT8", "INT16", "UINT8"):
        per_channel = weights(type_, filter_shape, channels)
        yield [per_channel, bias(type_, per_channel, count, _scale(type_))]


def _scale(type_: str) -> float:
    return 0.001 if type_ == "INT16" else 0.05


def _output(type_: str) -> SampledTensor:
    return tensor(type_, scale=0.5 if type_ in ("INT8", "UINT8") else 0.005 if type_ == "INT16" else None)


_WINDOWS: list[dict[str, Any]] = [
    {"padding": SAME, "strideW": 1, "strideH": 1},
    {"padding": VALID, "strideW": 2, "strideH": 1},
    {"padding": SAME, "strideW": 2, "strideH": 3, "fusedActivationFunction": RELU6},
    {"padding": VALID, "strideW": 1, "strideH": 1, "dilationWFactor": 2, "dilationHFactor": 1},
    {"padding": SAME, "strideW": 1, "strideH": 1, "dilationWFactor": 2, "dilationHFactor": 2},
]
_HYBRID = {"padding": SAME, "strideW": 1, "strideH": 1}


@models("CONV_2D")
def conv_2d(name: str) -> Iterator[Op]:
    """Yield all types with windows, groups, and filters that are inputs or of another type."""
    for type_ in TYPES:
        for depth, filter_depth in ((3, 3), (4, 2)):
            image = tensor(type_, 2, 6, 7, depth)
            for window in _WINDOWS:
                for more in _forms(type_, (4, 3, 2, filter_depth), 0):
                    yield Op(name, [image, *more], [_output(type_)], options("Conv2D", **window))
    window = options("Conv2D", **_HYBRID)
    for activation in (1, 2, 3, 4):
        table = options("Conv2D", **_HYBRID, fusedActivationFunction=activation)
        for type_ in ("FLOAT32", "INT8"):
            plain = weights(type_, (4, 1, 1, 3))
            yield Op(name, [tensor(type_, 1, 4, 4, 3), plain, bias(type_, plain, 4)], [_output(type_)], table)
    yield Op(
        name,
        [tensor("FLOAT32", 1, 4, 4, 3), tensor("FLOAT32", 4, 2, 2, 3), tensor("FLOAT32", 4)],
        [tensor("FLOAT32")],
        window,
    )
    for channels in (None, 0):
        hybrid = weights("INT8", (4, 2, 2, 3), channels)
        yield Op(
            name, [tensor("FLOAT32", 1, 4, 4, 3), hybrid, constant(tensor("FLOAT32", 4))], [tensor("FLOAT32")], window
        )
    wide = replace(weights("FLOAT32", (4, 2, 2, 3)))
    yield Op(name, [tensor("FLOAT32", 3, 4, 3), wide], [tensor("FLOAT32")], window)


@models("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(name: str) -> Iterator[Op]:
    """Yield all types with windows and multipliers."""
    for type_ in TYPES:
        for multiplier in (1, 2):
            image = tensor(type_, 2, 6, 7, 3)
            for window in _WINDOWS:
                table = options("DepthwiseConv2D", depthMultiplier=multiplier, **window)
                for more in _forms(type_, (1, 3, 2, 3 * multiplier), 3):
                    yield Op(name, [image, *more], [_output(type_)], table)
    table = options("DepthwiseConv2D", depthMultiplier=1, **_HYBRID)
    for channels in (None, 3):
        hybrid = weights("INT8", (1, 2, 2, 3), channels)
        yield Op(
            name, [tensor("FLOAT32", 1, 4, 4, 3), hybrid, constant(tensor("FLOAT32", 3))], [tensor("FLOAT32")], table
        )


@models("TRANSPOSE_CONV")
def transpose_conv(name: str) -> Iterator[Op]:
    """Yield all types, strides and paddings, with and without bias."""
    for type_ in TYPES:
        for padding, stride, size in ((SAME, 2, (8, 10)), (VALID, 2, (9, 11)), (SAME, 1, (4, 5)), (VALID, 3, (12, 15))):
            table = options("TransposeConv", padding=padding, strideW=stride, strideH=stride)
            shape = constant(tensor("INT32", 4, values=[1, *size, 2]))
            for more in _forms(type_, (2, 3, 3, 4), 0):
                filter_, *rest = more
                yield Op(name, [shape, filter_, tensor(type_, 1, 4, 5, 4), *rest], [_output(type_)], table)
    filter_ = weights("FLOAT32", (2, 2, 2, 3))
    table = options("TransposeConv", padding=SAME, strideW=2, strideH=2, fusedActivationFunction=1)
    shape = constant(tensor("INT32", 4, values=[2, 6, 6, 2]))
    image = tensor("FLOAT32", 2, 3, 3, 3)
    yield Op(name, [shape, filter_, image, bias("FLOAT32", filter_, 2)], [tensor("FLOAT32")], table)
    variable = tensor("INT32", 4, values=[2, 6, 6, 2])
    table = options("TransposeConv", padding=SAME, strideW=2, strideH=2)
    yield Op(name, [variable, filter_, image], [tensor("FLOAT32")], table)
