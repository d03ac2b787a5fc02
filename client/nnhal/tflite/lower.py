"""Conversion of a TFLite graph to a `Model`, operator by operator."""

from nnhal.tflite.call import OperatorCall
from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.tflite.operands import Operands
from nnhal.tflite.operators import CONVERTERS
from nnhal.tflite.reader import Operator, TfliteGraph
from nnhal.types import Model, Operation, Subgraph


def convert(graph: TfliteGraph) -> Model:
    """Convert a graph to a model.

    Raises:
        TfliteError: the graph is inconsistent, or NNAPI does not support a part of it.
    """
    _check_inputs_and_outputs(graph)
    operands = Operands(graph)
    inputs = tuple(operands.read(index) for index in graph.inputs)
    operations: list[Operation] = []
    names: list[str] = []
    for operator in graph.operators:
        name = f"operator {operator.index} ({operator.name})"
        with prefix_errors(name):
            operations += _convert_operator(graph, operands, operator)
        names += [name] * (len(operations) - len(names))
    outputs = tuple(operands.read(index) for index in graph.outputs)
    return Model(
        Subgraph(operands.operands, tuple(operations), inputs, outputs),
        operand_values=operands.operand_values,
        pools=operands.pools,
        input_names=tuple(graph.tensors[index].name for index in graph.inputs),
        output_names=tuple(graph.tensors[index].name for index in graph.outputs),
        operation_names=tuple(names),
    )


def _convert_operator(graph: TfliteGraph, operands: Operands, operator: Operator) -> list[Operation]:
    if operator.code not in CONVERTERS:
        raise TfliteError("has no converter to NNAPI")
    call = OperatorCall(graph, operands, operator)
    CONVERTERS[operator.code](call)
    return call.operations


def _check_inputs_and_outputs(graph: TfliteGraph) -> None:
    """Raise TfliteError for a graph that no NNAPI model can represent (V-SUBGRAPH-02, 03, 05, 06, 10)."""
    if not graph.operators:
        raise TfliteError("has no operators")
    for kind, indexes in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        if not indexes:
            raise TfliteError(f"has no {kind}")
        if len(set(indexes)) != len(indexes):
            raise TfliteError(f"has a tensor twice among its {kind}")
    for index in graph.outputs:
        if index in graph.inputs:
            raise TfliteError(
                f"{graph.tensors[index]} is both an input and an output; NNAPI requires an operation between them"
            )
        if graph.tensors[index].data is not None:
            raise TfliteError(
                f"{graph.tensors[index]} is a constant and an output; NNAPI requires an operation that computes it"
            )
