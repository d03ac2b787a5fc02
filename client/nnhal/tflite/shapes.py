"""Shapes of inputs that the caller chooses, in place of those of the file.

Tensors that depend on such an input get unknown dimensions, which the device infers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tflite import BuiltinOperator

from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import Operator, Tensor, TfliteGraph

UNKNOWN = -1
"""An unknown dimension of a `Tensor`."""

Shapes = Mapping[str, Sequence[int | None]]
"""Shapes by name of the input; None and 0 are unknown dimensions."""


def set_shapes(graph: TfliteGraph, shapes: Shapes, *, scale_batch: bool = False) -> TfliteGraph:
    """Return the graph with other shapes of its inputs.

    Args:
        graph: the graph.
        shapes: the shapes.
        scale_batch: whether tensors whose first dimension alone is unknown are as many times longer than in the file
            as the inputs. Regions of the LiteRT extension need known shapes. The device checks them.

    Raises:
        TfliteError: there is no such input, or a shape has another rank or negative dimensions.
    """
    tensors = list(graph.tensors)
    open_shapes: dict[int, tuple[int, ...]] = {}
    ratios = set()
    for name, shape in shapes.items():
        tensor = _input(graph, name)
        new = _checked_shape(tensor, shape)
        tensors[tensor.index] = replace(tensor, shape=new)
        pairs = list(zip(tensor.shape, new, strict=True))
        if tensor.shape != new:
            open_shapes[tensor.index] = tuple(b if a == b else UNKNOWN for a, b in pairs)
            ratios.add(pairs[0][1] // pairs[0][0] if pairs[0][1] > 0 and pairs[0][1] % pairs[0][0] == 0 else 0)
    for operator in graph.operators:
        if not open_shapes.keys().isdisjoint(operator.inputs):
            for index in operator.outputs:
                open_shapes[index] = _open_shape(graph, operator, graph.tensors[index], open_shapes)
                tensors[index] = replace(tensors[index], shape=open_shapes[index])
    if scale_batch and len(ratios) == 1 and ratios != {0}:
        (ratio,) = ratios
        for index, shape in open_shapes.items():
            if index not in graph.inputs and UNKNOWN in shape[:1] and UNKNOWN not in shape[1:]:
                tensors[index] = replace(tensors[index], shape=(graph.tensors[index].shape[0] * ratio, *shape[1:]))
    return replace(graph, tensors=tuple(tensors))


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


def _open_shape(
    graph: TfliteGraph, operator: Operator, tensor: Tensor, open_shapes: Mapping[int, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the shape of an output, with unknown dimensions where the open shapes of the inputs may change it."""
    inputs = [open_shapes[index] for index in operator.inputs if index in open_shapes]
    second = graph.tensors[operator.inputs[1]] if len(operator.inputs) > 1 else None
    if operator.code == BuiltinOperator.RESHAPE and (second is None or second.is_constant):
        new = operator.options.get("NewShape", ()) if second is None else graph.values(second.index)
        return tuple(int(length) for length in new)
    if operator.code == BuiltinOperator.TRANSPOSE and second is not None and second.is_constant:
        return tuple(inputs[0][int(axis)] for axis in graph.values(second.index))
    rank = len(tensor.shape)
    unknown = {i for shape in inputs for i, length in enumerate(shape) if length == UNKNOWN}
    if any(len(shape) != rank for shape in inputs) and unknown - {0}:
        unknown = set(range(rank))  # an operator that removes or adds dimensions may move them
    return tuple(UNKNOWN if i in unknown else length for i, length in enumerate(tensor.shape))
