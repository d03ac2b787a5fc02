"""Composites as the operators of their decompositions: LiteRT runs them in this way, too."""

from dataclasses import replace

from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.tflite.graph import Operator, Tensor, TfliteGraph
from nnhal.tflite_schema import BuiltinOperator


def inline_composites(graph: TfliteGraph) -> TfliteGraph:
    """Replace each STABLEHLO_COMPOSITE of a graph by the operators of its decomposition, and compute all outputs.

    The operators have the index of the composite.

    Raises:
        TfliteError: a decomposition is not a subgraph of the file with these inputs, or composites are too deep.
    """
    tensors, operators = list(graph.tensors), list[Operator]()
    for operator in graph.operators:
        if operator.code == BuiltinOperator.STABLEHLO_COMPOSITE:
            operators += _decompose(graph, operator, tensors)
        else:
            operators.append(operator)
    return _compute_outputs(replace(graph, tensors=tensors, operators=tuple(operators)))


def _decompose(graph: TfliteGraph, composite: Operator, tensors: list[Tensor]) -> list[Operator]:
    """Return the operators of a decomposition, and add their tensors."""
    shapes = [tensors[index].shape for index in composite.inputs]
    with prefix_errors(str(composite)):
        inner = inline_composites(graph.called(composite.options.get("decomposition_subgraph_index", 0), shapes))
    if len(inner.outputs) != len(composite.outputs):
        raise TfliteError(f"{composite} has {len(composite.outputs)} outputs; its subgraph has {len(inner.outputs)}")
    numbers = dict(zip((*inner.inputs, *inner.outputs), (*composite.inputs, *composite.outputs), strict=True)) | {
        -1: -1
    }
    for tensor in inner.tensors:
        if tensor.index not in numbers:
            numbers[tensor.index] = len(tensors)
            tensors.append(replace(tensor, index=len(tensors)))

    def renumber(indexes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[index] for index in indexes)

    return [
        replace(
            operator,
            index=composite.index if operator.index >= 0 else -1,
            inputs=renumber(operator.inputs),
            outputs=renumber(operator.outputs),
            intermediates=renumber(operator.intermediates),
        )
        for operator in inner.operators
    ]


def _compute_outputs(graph: TfliteGraph) -> TfliteGraph:
    """Add a RESHAPE to each output that is an input, a constant, or an output already (V-SUBGRAPH-05, 06, 10)."""
    computed = {index for operator in graph.operators for index in operator.outputs}
    tensors, operators, outputs = list(graph.tensors), list(graph.operators), []
    for index in graph.outputs:
        if index not in computed or index in outputs or index in graph.inputs:
            source = tensors[index]
            copy = replace(source, index=len(tensors), data=None, folded=None, sparsity=None)
            name, table = "RESHAPE", "ReshapeOptions"
            operators.append(Operator(-1, BuiltinOperator.RESHAPE, name, (index,), (copy.index,), {}, table))
            tensors.append(copy)
            index = copy.index
        outputs.append(index)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators), outputs=tuple(outputs))
