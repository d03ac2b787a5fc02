"""Shapes of tensors: those of inputs that the caller chooses, and those that operators compute.

The shapes of the file are an example. Tensors that depend on an unknown dimension get unknown dimensions, too, which
the device infers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnhal.tflite.custom_options import CustomPadding, transpose_conv_options
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.folding.evaluator import GraphCall
from nnhal.tflite.graph import Operator, Tensor, TfliteGraph
from nnhal.tflite_schema import BuiltinOperator
from nnhal.tflite_schema.shapes.rule import UNKNOWN, Shape, ShapeCall, ShapeError, infer_shapes, shapes

Shapes = Mapping[str, Sequence[int | None]]
"""Shapes by name of the input; None and 0 are unknown dimensions."""


def set_shapes(graph: TfliteGraph, shapes: Shapes) -> TfliteGraph:
    """Return the graph with other shapes of its inputs.

    Raises:
        TfliteError: there is no such input, or a shape has another rank or negative dimensions.
    """
    tensors = list(graph.tensors)
    for name, shape in shapes.items():
        tensor = _input(graph, name)
        tensors[tensor.index] = replace(tensor, shape=_checked_shape(tensor, shape))
    return replace(graph, tensors=tuple(tensors))


def output_shapes(graph: TfliteGraph, operator: Operator, declared: Sequence[Shape]) -> Sequence[Shape]:
    """Return the shapes of the outputs of an operator, as LiteRT computes them.

    The shapes of the operator's inputs, and the values of those that are constants, are in the graph. The `declared`
    shapes of all tensors in the file count where nothing is known that contradicts them.
    """
    shapes = [declared[index] for index in operator.outputs]
    inputs = [graph.tensors[index] for index in operator.inputs if index >= 0]
    if any(UNKNOWN in tensor.shape for tensor in inputs):
        return [_open_shape(graph, operator, declared, shape) for shape in shapes]
    if (inferred := inferred_shapes(graph, operator)) is not None:
        return inferred
    if all(tensor.shape == declared[tensor.index] for tensor in inputs):
        return shapes
    return [(UNKNOWN,) * len(shape) for shape in shapes]


def inferred_shapes(graph: TfliteGraph, operator: Operator) -> Sequence[Shape] | None:
    """Return the shapes of the outputs that the rule of an operator infers, or None if they are not known."""
    try:
        return infer_shapes(GraphCall(graph, operator))
    except ShapeError:
        return None


@shapes("CUSTOM Convolution2DTransposeBias")
def transpose_conv_bias(call: ShapeCall) -> Sequence[Shape]:
    """Infer the shape of a transposed convolution with a bias, whose options are bytes."""
    assert isinstance(call, GraphCall)
    options = transpose_conv_options(call.operator)
    strides = options.stride_height, options.stride_width
    image, (channels, *window, _) = call.shape(0), call.shape(1)
    sizes = [length * stride for length, stride in zip(image[1:3], strides, strict=True)]
    if options.padding == CustomPadding.VALID:
        sizes = [n + max(w - s, 0) for n, w, s in zip(sizes, window, strides, strict=True)]
    return [(image[0], *sizes, channels)]


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


def _open_shape(graph: TfliteGraph, operator: Operator, declared: Sequence[Shape], shape: Shape) -> Shape:
    """Return the shape of an output, with unknown dimensions where those of the inputs may change it."""
    inputs = [_open(graph.tensors[index].shape, declared[index]) for index in operator.inputs if index >= 0]
    second = graph.tensors[operator.inputs[1]] if len(operator.inputs) > 1 else None
    if operator.code == BuiltinOperator.RESHAPE and second is None:
        return tuple(operator.options.get("new_shape") or ())
    if operator.code == BuiltinOperator.RESHAPE and second is not None and second.is_constant:
        new = graph.values(second.index) if second.folded is None else second.folded
        return tuple(int(length) for length in new.reshape(-1))
    if operator.code == BuiltinOperator.TRANSPOSE and second is not None and second.is_constant:
        return tuple(inputs[0][int(axis)] for axis in graph.values(second.index))
    unknown = {i for each in inputs for i, length in enumerate(each) if length == UNKNOWN}
    if any(len(each) != len(shape) for each in inputs if UNKNOWN in each) and unknown - {0}:
        unknown = set(range(len(shape)))  # an operator that removes or adds dimensions may move them
    return tuple(UNKNOWN if i in unknown else length for i, length in enumerate(shape))


def _open(shape: Shape, declared: Shape) -> Shape:
    """Return a shape with unknown dimensions where it differs from the one in the file."""
    return tuple(a if a == b else UNKNOWN for a, b in zip(shape, declared, strict=False))
