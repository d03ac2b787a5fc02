"""Sub-models whose shapes are known, so that their operators can be copied into the model of their neighbors."""

from collections.abc import Sequence
from typing import Any

from nnhal.tflite_schema.dtypes import DTYPES
from nnhal.tflite_schema.shapes.rule import Shape, ShapeCall, ShapeError, infer_shapes
from nnhal.types import AnyArray
from nnhal_driver.backends.litert.submodel.model import (
    ITEM_BITS,
    SubModel,
    SubModelGraph,
    SubModelOperator,
    SubModelTensor,
)


def has_static_shapes(model: SubModel) -> bool:
    """Return whether a sub-model declares all shapes as LiteRT computes them, and is nothing but its operators.

    Operators without a rule for shapes, such as IF and WHILE, and custom ones, are not static.
    """
    graph = model.main
    written = {o for operator in graph.operators for o in operator.outputs}
    return (
        model.is_complete
        and len(model.graphs) == 1
        and all(map(_is_static_tensor, graph.tensors))
        and len(set(graph.inputs)) == len(graph.inputs)
        and not any(graph.tensors[i].data is not None or graph.tensors[i].is_variable for i in graph.inputs)
        and written.issuperset(graph.outputs)
        and all(_is_static_operator(graph, operator) for operator in graph.operators)
    )


def _is_static_tensor(tensor: SubModelTensor) -> bool:
    if tensor.type not in ITEM_BITS or min(tensor.shape, default=1) < 1:
        return False
    return tensor.data is None or (tensor.type in DTYPES and len(tensor.data) == tensor.byte_size)


def _is_static_operator(graph: SubModelGraph, operator: SubModelOperator) -> bool:
    call = _RegionCall(graph, operator)
    try:
        return list(infer_shapes(call)) == list(call.outputs)
    except ShapeError:
        return False


class _RegionCall(ShapeCall):
    """An operator of a region, for the rules of shapes."""

    def __init__(self, graph: SubModelGraph, operator: SubModelOperator) -> None:
        outputs = [graph.tensors[o].shape for o in operator.outputs]
        super().__init__(operator.kind, len(operator.inputs), outputs)
        self._inputs: Sequence[SubModelTensor | None] = graph.inputs_of(operator)
        self._options = operator.options

    def shape(self, position: int) -> Shape:
        return self._input(position).shape

    def has(self, position: int) -> bool:
        return position < self.inputs and self._inputs[position] is not None

    def array(self, position: int) -> AnyArray:
        tensor = self._input(position)
        if tensor.data is None:
            raise ValueError(f"input {position} is not constant; its value must be known")
        return tensor.values()

    def option(self, name: str, default: Any) -> Any:
        return self._options.get(name, default)

    def _input(self, position: int) -> SubModelTensor:
        tensor = self._inputs[position]
        if tensor is None:
            raise ValueError(f"input {position} is missing")
        return tensor
