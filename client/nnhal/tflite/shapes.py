"""Shapes of tensors: those of inputs that the caller chooses, and those that operators compute.

The shapes of the file are an example, and may be wrong for all tensors but inputs, constants and states. Tensors that
depend on an unknown dimension get unknown dimensions, too, which the device infers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nnhal.tflite.custom_options import CustomPadding, integer_option, window_options
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.folding.evaluator import GraphCall
from nnhal.tflite.graph import TENSOR_DTYPES, Operator, Tensor, TfliteGraph
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.tflite_schema.shapes.rule import (
    MAX_VALUES,
    RULES,
    UNKNOWN,
    UNKNOWN_RANK,
    Shape,
    ShapeCall,
    ShapeError,
    infer_shapes,
    shapes,
)
from nnhal.types import AnyArray

Shapes = Mapping[str, Sequence[int | None]] | Mapping[int, Sequence[int | None]]
"""Shapes by name of the input; None and 0 are unknown dimensions. Shapes by index may have any rank."""
_LENGTHS = (1, 2, 2520, 5040)
"""Samples of unknown lengths: 1 is broadcast or squeezed, large ones have many divisors."""


def set_shapes(graph: TfliteGraph, shapes: Shapes) -> TfliteGraph:
    """Return the graph with other shapes of its inputs.

    Raises:
        TfliteError: there is no such input, or a shape has another rank or negative dimensions.
    """
    tensors = list(graph.tensors)
    for key, shape in shapes.items():
        if isinstance(key, int):
            tensors[key] = replace(tensors[key], shape=tuple(length or UNKNOWN for length in shape))
        else:
            tensor = _input(graph, key)
            tensors[tensor.index] = replace(tensor, shape=_checked_shape(tensor, shape))
    return replace(graph, tensors=tuple(tensors))


def output_shapes(graph: TfliteGraph, operator: Operator) -> Sequence[Shape]:
    """Return the shapes of the outputs of an operator, as LiteRT computes them. Those in the file do not count.

    The shapes of the operator's inputs, and the values of those that are constants, are in the graph. If dimensions are
    unknown, the rule of the operator is tried with several lengths: what differs among the results is unknown, too. If
    values are unknown, only the rank follows, in the same way.
    """
    if operator.code == BuiltinOperator.CUSTOM and operator.name not in RULES:
        return [graph.tensors[index].shape for index in operator.outputs]  # LiteRT does not have it either
    if operator.code == BuiltinOperator.RESHAPE and (shape := _stated_shape(graph, operator)) is not None:
        return [shape]
    is_known = all(min(graph.tensors[index].shape, default=0) >= 0 for index in operator.inputs if index >= 0)
    if is_known and (inferred := inferred_shapes(graph, operator)) is not None:
        return inferred
    samples = _infer_samples(_Sample(graph, operator, length) for length in _LENGTHS)
    if len(samples) > 1:
        return [common_shape(shapes) for shapes in zip(*samples, strict=True)]
    samples = _infer_samples(_Sample(graph, operator, length, v) for length in _LENGTHS for v in (np.ones, _positions))
    if not samples:
        return [UNKNOWN_RANK] * len(operator.outputs)
    ranks = [[(UNKNOWN,) * len(shape) for shape in shapes] for shapes in zip(*samples, strict=True)]
    return [common_shape(shapes) for shapes in ranks]


def inferred_shapes(graph: TfliteGraph, operator: Operator) -> Sequence[Shape] | None:
    """Return the shapes of the outputs that the rule of an operator infers, or None if they are not known."""
    return next(iter(_infer_samples([GraphCall(graph, operator)])), None)


@shapes("CUSTOM Convolution2DTransposeBias")
def transpose_conv_bias(call: ShapeCall) -> Sequence[Shape]:
    """Infer the shape of a transposed convolution with a bias, whose options are bytes."""
    options = window_options(_operator(call))
    strides = options.stride_height, options.stride_width
    image, (channels, *window, _) = call.shape(0), call.shape(1)
    sizes = [length * stride for length, stride in zip(image[1:3], strides, strict=True)]
    if options.padding == CustomPadding.VALID:
        sizes = [n + max(w - s, 0) for n, w, s in zip(sizes, window, strides, strict=True)]
    return [(image[0], *sizes, channels)]


@shapes("CUSTOM TFLite_Detection_PostProcess")
def detection(call: ShapeCall) -> Sequence[Shape]:
    """Infer the shapes of boxes, classes, scores and their number. The options are a flexbuffer."""
    names = ("max_classes_per_detection", "max_detections")
    per_class, most = (integer_option(_operator(call), name) for name in names)
    return [(1, per_class * most, 4), (1, per_class * most), (1, per_class * most), (1,)]


@shapes("CUSTOM MaxPoolingWithArgmax2D")
def max_pooling_with_argmax(call: ShapeCall) -> Sequence[Shape]:
    """Infer the shapes of a pooling and of the positions of its maxima. Windows do not overlap."""
    options = window_options(_operator(call))
    strides = options.stride_height, options.stride_width
    batch, *image, channels = call.shape(0)
    rest = [stride - 1 if options.padding == CustomPadding.SAME else 0 for stride in strides]
    shape = (batch, *((n + r) // s for n, r, s in zip(image, rest, strides, strict=True)), channels)
    return [shape, shape]


@shapes("CUSTOM MaxUnpooling2D")
def max_unpooling(call: ShapeCall) -> Sequence[Shape]:
    """Infer the shape of the reverse of a pooling."""
    options, (batch, height, width, channels) = window_options(_operator(call)), call.shape(0)
    return [(batch, height * options.stride_height, width * options.stride_width, channels)]


@shapes("CUSTOM AudioSpectrogram")
def spectrogram(call: ShapeCall) -> Sequence[Shape]:
    """Infer the shape of spectra: channels, windows, and the frequencies of an FFT of the next power of 2."""
    window, stride = (integer_option(_operator(call), name) for name in ("window_size", "stride"))
    samples, channels = call.shape(0)
    frequencies = 2 ** (window - 1).bit_length() // 2 + 1
    return [(channels, (samples - window) // stride + 1 if samples >= window else 0, frequencies)]


@shapes("CUSTOM Mfcc")
def mfcc(call: ShapeCall) -> Sequence[Shape]:
    """Infer the shape of cepstral coefficients."""
    return [(*call.shape(0)[:2], integer_option(_operator(call), "dct_coefficient_count"))]


@shapes("BITCAST")
def bitcast(call: ShapeCall) -> Sequence[Shape] | None:
    """Infer the shape of the same bits: elements of another size have a dimension for their parts."""
    if not isinstance(call, GraphCall):  # other calls do not tell the types
        return None
    shape, before, after = call.shape(0), TENSOR_DTYPES[call.tensor(0).type].itemsize, call.dtype().itemsize
    if before >= after:
        return [shape if before == after else (*shape, before // after)]
    return [shape[:-1]] if shape[-1] * before == after else None


def _operator(call: ShapeCall) -> Operator:
    """Return a custom operator, whose options only a graph has."""
    assert isinstance(call, GraphCall)
    return call.operator


def _input(graph: TfliteGraph, name: str) -> Tensor:
    for index in graph.inputs:
        if graph.tensors[index].name == name:
            return graph.tensors[index]
    names = ", ".join(repr(graph.tensors[index].name) for index in graph.inputs)
    raise TfliteError(f"has no input {name!r}; there are {names}")


def _checked_shape(tensor: Tensor, shape: Sequence[int | None]) -> tuple[int, ...]:
    if len(shape) != len(tensor.shape) or any(length is not None and length < 0 for length in shape):
        raise TfliteError(f"{tensor} cannot have shape {list(shape)}: the file has {list(tensor.shape)}")
    return tuple(length or UNKNOWN for length in shape)


def _stated_shape(graph: TfliteGraph, operator: Operator) -> Shape | None:
    """Return the shape that a RESHAPE states, with UNKNOWN for -1, if that says more than the rule can infer."""
    if not operator.inputs or operator.inputs[0] < 0:
        return None
    source, *more = (graph.tensors[index] for index in operator.inputs if index >= 0)
    vector = next((tensor for tensor in more if tensor.type == TensorType.INT32), None)  # LiteRT ignores others
    if vector is not None and not vector.is_constant:
        return (UNKNOWN,) * vector.shape[0] if len(vector.shape) == 1 and vector.shape[0] >= 0 else UNKNOWN_RANK
    if min(source.shape, default=0) >= 0 and not (vector and vector.is_symbolic):
        return None
    if vector is None:
        return tuple(operator.options.get("new_shape") or ())
    new = graph.values(vector.index) if vector.folded is None else vector.folded
    return tuple(int(length) for length in new.reshape(-1))


class _Sample(GraphCall):
    """An operator with a length in place of all unknown dimensions, and maybe with samples in place of values."""

    def __init__(
        self, graph: TfliteGraph, operator: Operator, length: int, values: Callable[..., AnyArray] | None = None
    ) -> None:
        super().__init__(graph, operator)
        self._length = length
        self._values = values

    def shape(self, position: int) -> Shape:
        shape = super().shape(position)
        if shape == UNKNOWN_RANK:
            raise ValueError("the rank is unknown")
        return tuple(self._length if length == UNKNOWN else length for length in shape)

    def array(self, position: int) -> AnyArray:
        tensor = self.tensor(position)
        if tensor.is_symbolic and tensor.folded is not None:
            return np.asarray(np.where(tensor.folded == UNKNOWN, self._length, tensor.folded))
        if tensor.is_constant or self._values is None:
            return super().array(position)
        shape = self.shape(position)
        if prod(shape) > MAX_VALUES:
            raise ValueError(f"samples of shape {list(shape)} are too large")
        return self._values(shape, TENSOR_DTYPES[tensor.type])


def _positions(shape: Shape, dtype: np.dtype[Any]) -> AnyArray:
    """Return different numbers: those that stand for axes remove more dimensions than ones do."""
    return np.arange(prod(shape), dtype=dtype).reshape(shape)


def _infer_samples(calls: Iterable[GraphCall]) -> list[Sequence[Shape]]:
    """Return the shapes of the outputs for each call from which they follow."""
    samples = []
    for call in calls:
        with suppress(ShapeError):
            samples.append(infer_shapes(call))
    return samples


def common_shape(shapes: Sequence[Shape]) -> Shape:
    """Return what several shapes have in common: other dimensions are unknown, and so may be the rank."""
    if len(set(map(len, shapes))) > 1 or UNKNOWN_RANK in shapes:
        return UNKNOWN_RANK
    return tuple(lengths[0] if len(set(lengths)) == 1 else UNKNOWN for lengths in zip(*shapes, strict=True))
