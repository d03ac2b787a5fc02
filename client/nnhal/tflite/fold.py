"""Constant folding: operators whose result is known at import are evaluated and removed.

The shapes of the other results are inferred on the way, since values and shapes depend on each other: SHAPE and RANK
need only the shape of their input. An operator whose result is an output of the graph stays, since NNAPI requires that
an operation computes each output. Operators whose results nothing reads are removed, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from nnhal.tflite.composites import inline_composites
from nnhal.tflite.folding.evaluator import EVALUATORS, GraphCall
from nnhal.tflite.graph import TENSOR_DTYPES, Operator, Tensor, TfliteGraph
from nnhal.tflite.memory import reserve
from nnhal.tflite.shapes import Shapes, common_shape, inferred_shapes, output_shapes, set_shapes
from nnhal.tflite.sparse import densify_constants
from nnhal.tflite_schema import BuiltinOperator
from nnhal.tflite_schema.shapes.rule import INFERENCE_ERRORS, UNKNOWN, UNKNOWN_RANK, Shape
from nnhal.types import AnyArray

_NO_SHAPES: Shapes = {}
_MAX_BYTES = 2**30
"""Largest folded value."""
_MAX_PASSES = 8
"""Limit of the passes over the body of a WHILE. Each one makes a dimension or a rank unknown."""
_MOVEMENTS = frozenset(
    {
        BuiltinOperator.CAST,
        BuiltinOperator.CONCATENATION,
        BuiltinOperator.EXPAND_DIMS,
        BuiltinOperator.GATHER,
        BuiltinOperator.PACK,
        BuiltinOperator.RESHAPE,
        BuiltinOperator.SLICE,
        BuiltinOperator.SQUEEZE,
        BuiltinOperator.STRIDED_SLICE,
        BuiltinOperator.UNPACK,
    }
)
"""Operators that keep -1 for an unknown dimension."""
_WITH_EFFECTS = frozenset(
    {
        BuiltinOperator.IF,
        BuiltinOperator.WHILE,
        BuiltinOperator.CALL,
        BuiltinOperator.CALL_ONCE,
        BuiltinOperator.ASSIGN_VARIABLE,
    }
)
"""Operators that stay although nothing reads their results."""


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """A graph without operators on constants, the operators that were evaluated, and those that nothing reads."""

    graph: TfliteGraph
    evaluated: Sequence[Operator]
    unread: Sequence[Operator]


def normalize(graph: TfliteGraph, shapes: Shapes = _NO_SHAPES) -> FoldedGraph:
    """Set shapes, replace composites, make sparse constants dense, compute each output by an operator, and fold.

    Raises:
        TfliteError: a shape does not fit the input, the layout of a sparse constant is inconsistent, or a composite is
            damaged.
    """
    return fold(densify_constants(inline_composites(set_shapes(graph, shapes))))


def fold(graph: TfliteGraph) -> FoldedGraph:
    """Fold constants, infer shapes, and remove operators without readers."""
    tensors, kept, evaluated = list(graph.tensors), dict[int, Operator](), dict[int, Operator]()
    state = replace(graph, tensors=tensors)  # shares the list, in which values appear
    for position, operator in enumerate(graph.operators):
        values = None if set(operator.outputs) & set(graph.outputs) else _evaluate(state, operator)
        if values is None:
            if operator.index < 0:  # the copy of a tensor, whose shape is known now
                operator = replace(operator, options={"new_shape": tensors[operator.inputs[0]].shape})
            kept[position] = operator
            for index, shape in zip(operator.outputs, _output_shapes(state, operator), strict=True):
                if shape != tensors[index].shape:
                    tensors[index] = replace(tensors[index], shape=shape)
            continue
        evaluated[position] = operator
        is_symbolic = _depends_on_unknown(state, operator)
        for index, value in zip(operator.outputs, values, strict=True):
            tensors[index] = replace(
                tensors[index],
                folded=value,
                shape=value.shape,
                is_symbolic=is_symbolic and bool((value == UNKNOWN).any()),
            )
    kept = {position: _with_known_shape(operator, tensors) for position, operator in kept.items()}
    _restore_unknown(kept, evaluated, tensors)
    remaining, unread = _split_unread([kept[position] for position in sorted(kept)], graph.outputs)
    folded = replace(graph, tensors=tuple(tensors), operators=tuple(remaining))
    return FoldedGraph(folded, list(evaluated.values()), unread)


def _restore_unknown(kept: dict[int, Operator], evaluated: dict[int, Operator], tensors: list[Tensor]) -> None:
    """Keep the operators whose values have -1 for an unknown dimension after all, if an operator needs the values."""
    needed = {i for operator in kept.values() for i in operator.inputs if i >= 0 and tensors[i].is_symbolic}
    for position in sorted(evaluated, reverse=True):
        if needed.isdisjoint(evaluated[position].outputs):
            continue
        kept[position] = operator = evaluated.pop(position)
        needed.update(i for i in operator.inputs if i >= 0 and tensors[i].is_symbolic)
        for index in operator.outputs:
            tensors[index] = replace(tensors[index], folded=None, is_symbolic=False)


def _output_shapes(graph: TfliteGraph, operator: Operator) -> Sequence[Shape]:
    """Return the shapes of the outputs of an operator, also of one that runs other subgraphs."""
    if operator.code not in (BuiltinOperator.IF, BuiltinOperator.WHILE):
        return output_shapes(graph, operator)
    try:
        shapes = _shapes_of_calls(graph, operator)
    except (ValueError, LookupError):  # the subgraphs do not fit the operator
        shapes = []
    return shapes if len(shapes) == len(operator.outputs) else [UNKNOWN_RANK] * len(operator.outputs)


def _shapes_of_calls(graph: TfliteGraph, operator: Operator) -> Sequence[Shape]:
    """Return what the branches of an IF, or the passes of a WHILE, have in common."""
    shapes = [graph.tensors[index].shape for index in operator.inputs]
    if operator.code == BuiltinOperator.IF:
        branches = (operator.options[name] for name in ("then_subgraph_index", "else_subgraph_index"))
        results = [_shapes_of_call(graph, index, shapes[1:]) for index in branches]
        return [common_shape(each) for each in zip(*results, strict=True)]
    for _ in range(_MAX_PASSES):
        results = [shapes, _shapes_of_call(graph, operator.options["body_subgraph_index"], shapes)]
        before, shapes = shapes, [common_shape(each) for each in zip(*results, strict=True)]
        if before == shapes:
            return shapes
    return [UNKNOWN_RANK] * len(shapes)


def _shapes_of_call(graph: TfliteGraph, index: int, shapes: Sequence[Shape]) -> list[Shape]:
    """Return the shapes of the outputs of another subgraph, for the shapes of its inputs."""
    called = normalize(graph.called(index, shapes)).graph
    return [called.tensors[output].shape for output in called.outputs]


def _evaluate(graph: TfliteGraph, operator: Operator) -> Sequence[AnyArray] | None:
    """Return the outputs of an operator, or None if they are not known."""
    try:
        with np.errstate(all="ignore"):
            outputs = _call_evaluator(graph, operator)
    except INFERENCE_ERRORS:
        return None
    if outputs is None or len(outputs) != len(operator.outputs) or sum(o.nbytes for o in outputs) > _MAX_BYTES:
        return None
    dtypes = [TENSOR_DTYPES.get(graph.tensors[index].type) for index in operator.outputs]
    if any(value.dtype != dtype for value, dtype in zip(outputs, dtypes, strict=True)):
        return None
    return [np.ascontiguousarray(value) if value.ndim else value.copy() for value in outputs]


def _call_evaluator(graph: TfliteGraph, operator: Operator) -> Sequence[AnyArray] | None:
    if operator.code in (BuiltinOperator.SHAPE, BuiltinOperator.RANK):
        return _evaluate_shape(graph, operator)
    is_constant = all(index < 0 or graph.tensors[index].is_constant for index in operator.inputs)
    if operator.code not in EVALUATORS or not operator.inputs or not is_constant:
        return None
    if _depends_on_unknown(graph, operator):
        if operator.code not in _MOVEMENTS:
            return None
        plain = [replace(tensor, is_symbolic=False) if tensor.is_symbolic else tensor for tensor in graph.tensors]
        graph = replace(graph, tensors=plain)
    if (size := _output_bytes(graph, operator)) > _MAX_BYTES:
        return None
    reserve(size)
    return EVALUATORS[operator.code](GraphCall(graph, operator))


def _output_bytes(graph: TfliteGraph, operator: Operator) -> int:
    """Return the size of the outputs of an operator as far as it is known."""
    shapes = inferred_shapes(graph, operator) or ()
    types = (graph.tensors[index].type for index in operator.outputs)
    sizes = (prod(shape) * TENSOR_DTYPES[type_].itemsize for shape, type_ in zip(shapes, types, strict=False))
    return sum(sizes)


def _evaluate_shape(graph: TfliteGraph, operator: Operator) -> Sequence[AnyArray] | None:
    tensor = graph.tensors[operator.inputs[0]]
    dtype = TENSOR_DTYPES[graph.tensors[operator.outputs[0]].type]
    if tensor.shape == UNKNOWN_RANK:
        return None
    if operator.code == BuiltinOperator.RANK:
        return [np.array(len(tensor.shape), dtype)]
    if any(length == 0 for length in tensor.shape):
        return None
    return [np.array(tensor.shape, dtype)]


def _depends_on_unknown(graph: TfliteGraph, operator: Operator) -> bool:
    """Return whether a result may have -1 for an unknown dimension: a SHAPE, or a movement of elements of one."""
    if operator.code == BuiltinOperator.SHAPE:
        return UNKNOWN in graph.tensors[operator.inputs[0]].shape
    return any(index >= 0 and graph.tensors[index].is_symbolic for index in operator.inputs)


def _with_known_shape(operator: Operator, tensors: list[Tensor]) -> Operator:
    """Return a RESHAPE with at most one unknown dimension with a constant shape: it infers a -1 itself."""
    if operator.code != BuiltinOperator.RESHAPE or len(operator.inputs) < 2:
        return operator
    shape = tensors[operator.inputs[1]]
    if not shape.is_symbolic or shape.folded is None or np.count_nonzero(shape.folded == UNKNOWN) > 1:
        return operator
    tensors.append(replace(shape, index=len(tensors), is_symbolic=False))
    return replace(operator, inputs=(operator.inputs[0], len(tensors) - 1))


def _split_unread(operators: Sequence[Operator], outputs: Sequence[int]) -> tuple[list[Operator], list[Operator]]:
    """Return the operators that contribute to the outputs or have effects, and the others."""
    read, kept, unread = set(outputs), [], []
    for operator in reversed(operators):
        if operator.code in _WITH_EFFECTS or read.intersection(operator.outputs) or not operator.outputs:
            kept.append(operator)
            read.update(operator.inputs)
        else:
            unread.append(operator)
    return kept[::-1], unread[::-1]
