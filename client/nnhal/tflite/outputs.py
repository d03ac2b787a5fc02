"""Outputs as NNAPI requires them: each one is computed by an operation, and none occurs twice."""

from dataclasses import replace

from nnhal.tflite.graph import Operator, TfliteGraph
from nnhal.tflite_schema import BuiltinOperator


def compute_outputs(graph: TfliteGraph) -> TfliteGraph:
    """Add a RESHAPE to each output that is an input, a constant, or an output already (V-SUBGRAPH-05, 06, 10)."""
    computed = {index for operator in graph.operators for index in operator.outputs}
    tensors, operators, outputs = list(graph.tensors), list(graph.operators), []
    for index in graph.outputs:
        if index not in computed or index in outputs or index in graph.inputs:
            source = tensors[index]
            copy = replace(source, index=len(tensors), data=None, folded=None, sparsity=None)
            options = {"new_shape": source.shape}
            name = "RESHAPE"
            operators.append(
                Operator(-1, BuiltinOperator.RESHAPE, name, (index,), (copy.index,), options, "ReshapeOptions")
            )
            tensors.append(copy)
            index = copy.index
        outputs.append(index)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators), outputs=tuple(outputs))
